#!/usr/bin/env python3
"""Tokens per second of the engine and of transformers' generate() on the same work.

    python engine.py WORKER [REPEATS [WORK ...]]

WORKER is target/debug/examples/engine_work (`make bench-engine`). WORK: distinct, groups, ragged.

Both sides use the same files, prompts and lengths, one thread, and f32. The model is random:
6 layers of 256 (8 heads over 4 of 32, SwiGLU 768, vocabulary 4096, tied). transformers runs each
work with its fastest settings for that work (attention sdpa or eager, f32 matmul "highest" or
"medium"), which are printed. Before a row is measured, each setting is tried twice on as many whole
requests as there are slots.

The two sides take turns; medians and their ratio are printed. Requests of different lengths also
run with transformers' own continuous batching: the same settings, each tried once after a warm-up
run, and a cache for as many requests as there are slots, after a first call that allocates it.

The whole takes about a quarter of an hour. Seconds are processor time, not wall-clock time: each
side is one thread that never waits, so other work on the machine disturbs neither.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation import ContinuousBatchingConfig

from model import VOCAB, save_model

NEW = 64


def prompts(count, length, seed=1):
    return torch.randint(0, VOCAB, (count, length), generator=torch.Generator().manual_seed(seed))


def geometric(count, mean, cap, seed=1):
    draws = torch.rand(count, generator=torch.Generator().manual_seed(seed)).double()
    return (1 + torch.log1p(-draws) / torch.log1p(torch.tensor(-1.0 / mean).double())).long().clamp(1, cap).tolist()


# name: (prompts, samples of each, new tokens of each request, slots)
WORK = {
    "distinct 1": (prompts(1, 96), 1, [NEW], 1),
    "distinct 8": (prompts(8, 96), 1, [NEW] * 8, 8),
    "distinct 32": (prompts(32, 96), 1, [NEW] * 32, 32),
    "distinct 128": (prompts(128, 96), 1, [NEW] * 128, 128),
    "groups of 16: 32": (prompts(2, 192), 16, [NEW] * 32, 32),
    "groups of 16: 128": (prompts(8, 192), 16, [NEW] * 128, 128),
    "ragged 512 in 64": (prompts(512, 32), 1, geometric(512, 64, 256), 64),
}
ATTENTIONS, MATMULS = ("sdpa", "eager"), ("highest", "medium")
# Tries of each setting before a row is measured.
TRIES = 2


class Worker:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.processes = binary, folder, {}

    def run(self, ids, new, slots):
        if slots not in self.processes:
            self.processes[slots] = subprocess.Popen([self.binary, self.folder, str(slots)], stdin=subprocess.PIPE,
                                                     stdout=subprocess.PIPE, text=True)
        process = self.processes[slots]
        process.stdin.write(json.dumps({"prompts": ids.tolist(), "new": new}) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert answer["tokens"] == sum(new)
        return answer["seconds"]


def generate(net, ids, samples, new, slots):
    """Static batches in the order of arrival. Each runs until its longest request has ended."""
    begun = time.thread_time()
    per_batch = max(slots // samples, 1)
    for start in range(0, len(ids), per_batch):
        longest = max(new[start * samples:(start + per_batch) * samples])
        batch = ids[start:start + per_batch]
        net.generate(batch, attention_mask=torch.ones_like(batch), do_sample=True, temperature=1.0, top_k=0,
                     num_return_sequences=samples, max_new_tokens=longest, min_new_tokens=longest, pad_token_id=0)
    return time.thread_time() - begun


class Continuous:
    """transformers' own continuous batching.

    It computes in a thread, so the process's seconds are taken. It has a separate model, because the
    manager changes the model's attention. Its cache has room for the slots, two pages of 256 tokens
    each; by default it takes nine tenths of the machine's memory.
    """

    def __init__(self, folder, attention, slots):
        net = load(folder, attention)
        config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, max_new_tokens=256, eos_token_id=-1, pad_token_id=0)
        room = ContinuousBatchingConfig(num_blocks=2 * slots + 1, max_batch_tokens=1024, max_requests_per_batch=slots)
        self.manager = net.init_continuous_batching(generation_config=config, continuous_batching_config=room)
        self.manager.start()
        self.run([[2] * 32], [4])

    def run(self, ids, new):
        begun, left, tokens = time.process_time(), len(new), 0
        for prompt, count in zip(ids, new):
            self.manager.add_request(list(prompt), max_new_tokens=count)
        while left:
            result = self.manager.get_result(timeout=1)
            if result is None and not self.manager.is_running():
                raise SystemExit("transformers' continuous batching has ended")
            if result is not None and result.is_finished():
                left, tokens = left - 1, tokens + len(result.generated_tokens)
        assert tokens == sum(new)
        return time.process_time() - begun

    def stop(self):
        self.manager.stop(block=True)


def load(folder, attention):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()


def fastest(nets, ids, samples, new, slots):
    """Returns the fastest attention and f32 matmul on this work, cut to one request per slot."""
    ids, new = ids[:slots], new[:slots * samples]
    best = {}
    for _ in range(TRIES):
        for setting in ((attention, matmul) for attention in ATTENTIONS for matmul in MATMULS):
            torch.set_float32_matmul_precision(setting[1])
            seconds = generate(nets[setting[0]], ids, samples, new, slots)
            best[setting] = min(seconds, best.get(setting, seconds))
    attention, matmul = min(best, key=best.get)
    torch.set_float32_matmul_precision(matmul)
    return attention, matmul


def fastest_continuous(folder, ids, new, slots):
    """The same as `fastest`, for continuous batching; each setting is tried once."""
    seconds = {}
    for attention in ATTENTIONS:
        theirs = Continuous(folder, attention, slots)
        theirs.run(ids[:slots].tolist(), new[:slots])
        for matmul in MATMULS:
            torch.set_float32_matmul_precision(matmul)
            seconds[attention, matmul] = theirs.run(ids[:slots].tolist(), new[:slots])
        theirs.stop()
    attention, matmul = min(seconds, key=seconds.get)
    torch.set_float32_matmul_precision(matmul)
    return attention, matmul


def main():
    torch.set_num_threads(1)
    binary, repeats = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    folder = tempfile.mkdtemp()
    save_model(folder)
    print(f"{pathlib.Path('/proc/cpuinfo').read_text().split('model name')[1].splitlines()[0].strip(': 	')}, "
          f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; torch {torch.__version__}")
    worker, nets = Worker(binary, folder), {attention: load(folder, attention) for attention in ATTENTIONS}
    print(f"{'':20}{'engine':>12}{'transformers':>14}   tokens/s, medians of {repeats}; ratio (least, most); transformers' setting")
    for name, (ids, samples, new, slots) in WORK.items():
        if len(sys.argv) > 3 and name.split()[0] not in sys.argv[3:]:
            continue
        attention, matmul = fastest(nets, ids, samples, new, slots)
        compare(name, sum(new), repeats, f"{attention}, {matmul}", lambda: worker.run(ids, new, slots),
                lambda: generate(nets[attention], ids, samples, new, slots))
        if name.startswith("ragged"):
            attention, matmul = fastest_continuous(folder, ids, new, slots)
            theirs = Continuous(folder, attention, slots)
            compare("  continuous", sum(new), repeats, f"{attention}, {matmul}", lambda: worker.run(ids, new, slots),
                    lambda: theirs.run(ids.tolist(), new))
            theirs.stop()


def compare(name, total, repeats, setting, ours, theirs):
    ours()
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    here, there = (statistics.median(side) for side in zip(*pairs))
    ratios = sorted(b / a for a, b in pairs)
    print(f"{name:20}{total / here:12.0f}{total / there:14.0f}   {there / here:.2f}x ({ratios[0]:.2f}, {ratios[-1]:.2f})   {setting}",
          flush=True)


with torch.no_grad():
    main()
