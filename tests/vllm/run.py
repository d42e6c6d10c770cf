#!/usr/bin/env python3
"""Trains over real vLLM servers on this machine's CPU and checks what a user would see.

    tests/vllm/run.py                           every case
    tests/vllm/run.py two_adapters swap_modes   these cases
    tests/vllm/run.py --list                    their names

DYAD_BINARY names another dyad than target/debug/dyad. Files stay in target/vllm. The exit code
is 1 if a case failed.
"""

import shutil
import signal
import sys
import time
import traceback

import cases
import log_probs
from runs import ROOT, Failed, Run, random_model
from servers import Servers

CASES = [*cases.CASES, log_probs.log_prob_gap]


class Bench:
    """Everything that cases need: a folder, the random model and servers."""

    def __init__(self):
        self.home = ROOT / "target/vllm"
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        self.model = random_model(self.home)
        self.servers = Servers(self.home)

    def run(self, name, **changes):
        """Starts `dyad up` in a folder of this name."""
        changes.setdefault("model", self.model)
        return Run(self.home / name, **changes)


def main(names):
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
    bench, failed = Bench(), []
    try:
        for name in names or known:
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
    print(f"{len(names or known) - len(failed)} passed, {len(failed)} failed: {', '.join(failed) or '-'}; files in {bench.home}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
