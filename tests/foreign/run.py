#!/usr/bin/env python3
"""Trains over real servers on this machine's CPU and checks what a user would see.

    tests/foreign/run.py vllm                           every case
    tests/foreign/run.py sglang two_adapters swap_modes these cases
    tests/foreign/run.py vllm --list                    their names

DYAD_BINARY names another dyad than target/debug/dyad. The exit code is 1 if a case failed; its
files stay in target/foreign.
"""

import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import cases
import log_probs
import router
from runs import ROOT, Failed, Run, random_model
from servers import KINDS, Servers

CASES = [*cases.CASES, router.router, log_probs.log_prob_gap_f32, log_probs.log_prob_gap_bf16]
# Cases that a server cannot pass on a CPU, with the reason.
LEFT_OUT = {("sglang", "two_adapters"): "SGLang 0.5.23 makes adapters on CUDA devices only"}


class Bench:
    """Everything that cases need: a folder, the random model and servers."""

    def __init__(self, kind):
        parent = ROOT / "target/foreign"
        parent.mkdir(parents=True, exist_ok=True)
        self.home = Path(tempfile.mkdtemp(dir=parent, prefix=f"{kind}-"))
        self.model = random_model(self.home)
        self.servers = Servers(self.home, kind)

    def run(self, name, **changes):
        """Starts `dyad up` in a folder of this name."""
        changes.setdefault("model", self.model)
        return Run(self.home / name, **changes)


def main(kind, names):
    known = {case.__name__: case for case in CASES}
    if names == ["--list"]:
        for name, case in known.items():
            print(f"{name:26}{case.__doc__.splitlines()[0]}")
        return 0
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no case is called {', '.join(unknown)}; known are: {', '.join(known)}", file=sys.stderr)
        return 2
    # Servers and runs end with this program, whatever ends it.
    for end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(end, lambda *_: sys.exit(130))
    bench, failed = Bench(kind), []
    try:
        for name in names or known:
            if (kind, name) in LEFT_OUT:
                print(f"{name}: left out: {LEFT_OUT[kind, name]}", flush=True)
                continue
            start = time.monotonic()
            print(f"{name}: {known[name].__doc__.splitlines()[0]}", flush=True)
            try:
                known[name](bench)
                print(f"    passed in {time.monotonic() - start:.0f} s", flush=True)
            except Failed as error:
                failed.append(name)
                print(f"    FAILED: {error}", flush=True)
            except Exception:
                failed.append(name)
                print(f"    FAILED: {traceback.format_exc()}", flush=True)
    finally:
        bench.servers.close()
    if failed:
        print(f"failed: {', '.join(failed)}; files are in {bench.home}")
        return 1
    shutil.rmtree(bench.home)
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in KINDS:
        sys.exit(f"usage: run.py {'|'.join(KINDS)} [--list | CASE ...]")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
