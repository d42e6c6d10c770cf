#!/usr/bin/env python3
"""Tokens per second of dyad's engine and of what users would pick, on SmolLM2-135M.

    engines.py WORKER FOLDER [--sides dyad vllm ...] [--types f32 bf16] [--threads 1 2] [--batches 1 8 ...]

WORKER is target/debug/examples/engine_work, FOLDER the model (`make bench-engines`). Every batch has
random prompts of 96 tokens and 64 new tokens for each, at temperature 1. Each side is a process of
its own. With two threads, dyad is two processes (`engine.replicas`). After a first run, the sides take turns; the median of three runs is printed, in wall-clock
time: nothing else should run on the machine.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
VOCAB, LENGTH, NEW, REPEATS = 49152, 96, 64, 3
SIDES = ["dyad", "vllm", "transformers", "llama.cpp"]


class Side:
    def __init__(self, name, worker, folder, dtype, threads, batch):
        # An engine of dyad has one thread; for more there are replicas, which share a batch.
        self.replicas = min(threads, batch) if name == "dyad" else 1
        command = [sys.executable, HERE / "sides.py", name, folder, dtype, batch]
        if name == "dyad":
            command = [worker, folder, -(-batch // self.replicas), "cpu", dtype]
        environment = {**os.environ, "OMP_NUM_THREADS": "1" if name == "dyad" else str(threads)}
        self.processes = [
            subprocess.Popen(list(map(str, command)), env=environment, text=True, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(self.replicas)
        ]  # fmt: skip

    def run(self, prompts):
        """Returns the wall-clock seconds of a batch."""
        parts = [prompts[start :: self.replicas] for start in range(self.replicas)]
        begun = time.monotonic()
        for process, part in zip(self.processes, parts):
            process.stdin.write(json.dumps({"prompts": part, "new": [NEW] * len(part)}) + "\n")
            process.stdin.flush()
        for process, part in zip(self.processes, parts):
            answer = json.loads(process.stdout.readline())
            assert answer["tokens"] == NEW * len(part), answer
        return time.monotonic() - begun

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def compare(names, arguments, dtype, threads, batch):
    """Returns tokens per second of each side."""
    draw = random.Random(1)
    prompts = [[draw.randrange(3, VOCAB) for _ in range(LENGTH)] for _ in range(batch)]
    sides = [Side(name, arguments.worker, arguments.folder, dtype, threads, batch) for name in names]
    for side in sides:
        side.run(prompts)
    seconds = [[side.run(prompts) for side in sides] for _ in range(REPEATS)]
    for side in sides:
        side.close()
    return [batch * NEW / statistics.median(times) for times in zip(*seconds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worker")
    parser.add_argument("folder")
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--types", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32, 128])
    arguments = parser.parse_args()
    model = Path("/proc/cpuinfo").read_text().split("model name")[1].splitlines()[0].strip(": \t")
    print(f"{model}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; tokens/s, medians of {REPEATS}")
    print(f"{'':24}" + "".join(f"{name:>14}" for name in arguments.sides), flush=True)
    for dtype in arguments.types:
        for threads in arguments.threads:
            for batch in arguments.batches:
                row = compare(arguments.sides, arguments, dtype, threads, batch)
                name = f"{dtype}, {threads} threads, {batch}"
                print(f"{name:24}" + "".join(f"{speed:14.1f}" for speed in row), flush=True)


main()
