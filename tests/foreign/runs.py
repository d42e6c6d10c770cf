"""Runs `dyad up` with small configurations, and reads what a user would read."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DYAD = os.environ.get("DYAD_BINARY", ROOT / "target/debug/dyad")
# Guards against a run that hangs.
LONGEST = 1500
# A random model with names for four objects and symbols. The other words make long answers likely.
WORDS = [f"{kind}{i}" for kind in "os" for i in range(4)] + [f"w{i}" for i in range(500)]

CONFIG = """
[run]
name = "foreign"
seed = 3
mode = "{mode}"
train_steps = {steps}
lead = "{lead}"
[tasks]
source = "generator:signal"
params = {{ objects = 4 }}
[workflow]
kind = "signal"
group_size = {group_size}
roles = {{ speaker = "a", listener = "b" }}
params = {{ symbols = 4, max_new_tokens = {tokens} }}
[defaults.agent]
{model}
sampling = {{ temperature = {temperature}, max_new_tokens = {tokens} }}
{common}
[defaults.agent.train]
batch_groups = 4
max_staleness = {staleness}
entropy = 0.1
checkpoint_every = 2
optimizer = {{ lr = {lr} }}
[agents.a]
{a}
[agents.b]
{b}
"""
DEFAULTS = dict(mode="async", lead="a", group_size=4, tokens=16, temperature=1.0, staleness=1, lr=1e-2, common="", b="")
RANDOM = f"""model.random = {{ layers = 2, hidden = 64, heads = 2, kv_heads = 2, head_dim = 32, intermediate = 128, \
tied = false, max_context = 256, embedding_std = 1.0, matrix_std = 0.2, tokenizer.words = {json.dumps(WORDS)} }}"""


class Failed(Exception):
    """An expectation that was not met."""


def expect(condition, message):
    if not condition:
        raise Failed(message)


def engine(*servers, swap="in_place"):
    """Returns the engine setting of an agent on these servers."""
    urls = json.dumps([server.url for server in servers])
    return f'engine = {{ kind = "{servers[0].kind}", urls = {urls}, swap = "{swap}" }}'


def dyad(home, *args):
    """Runs a command of dyad in `home` to its end."""
    return subprocess.run([DYAD, *args], cwd=home, capture_output=True, text=True, timeout=LONGEST)


def random_model(home):
    """Returns the folder of the random model, which dyad itself makes and exports."""
    config = CONFIG.format(**{**DEFAULTS, "mode": "sync", "staleness": 0}, model=RANDOM, steps=1, a="")
    (home / "model.toml").write_text(config)
    for command in (["run", "model.toml"], ["export", "a", "--step", "initial", "--out", "random"]):
        ended = dyad(home, *command)
        expect(ended.returncode == 0, f"expected dyad {command[0]} to make a model: {ended.stderr}")
    return home / "random"


class Run:
    """One run of `dyad up` or `dyad run`, in a folder of its own."""

    def __init__(self, home, model, command="up", **changes):
        home.mkdir(parents=True)
        self.home, self.lead = home, changes.get("lead", "a")
        config = CONFIG.format(**{**DEFAULTS, **changes}, model=f'model.path = "{model}"')
        (home / "run.toml").write_text(config)
        with open(home / "up.log", "w") as out:
            self.process = subprocess.Popen([DYAD, command, "run.toml"], cwd=home, stdout=out, stderr=out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Ends the run if the case did not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def is_alive(self):
        return self.process.poll() is None

    def output(self):
        return (self.home / "up.log").read_text()

    def wait(self):
        """Returns the exit code at the end of the run."""
        try:
            return self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            raise Failed(f"expected the run to end within {LONGEST} s: {self.output()[-2000:]}") from None

    def until(self, condition, what):
        """Waits until a condition holds while the run lives."""
        end = time.monotonic() + LONGEST
        while not condition():
            expect(self.is_alive(), f"expected {what} before the run ended: {self.output()[-2000:]}")
            expect(time.monotonic() < end, f"expected {what} within {LONGEST} s")
            time.sleep(0.2)

    def lines(self, pattern):
        """Returns the JSON lines of files in the run's folder."""
        files = sorted(self.home.glob(f"runs/*/{pattern}"))
        lines = [line for file in files for line in file.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def trained(self, agent):
        """Returns the metrics of an agent's batches."""
        return [line for line in self.lines(f"metrics/{agent}.jsonl") if line["kind"] == "train"]

    def log(self, agent):
        """Returns the messages in an agent's log."""
        return [line["message"] for line in self.lines(f"logs/{agent}.jsonl")]

    def command(self, name, *args):
        """Returns the JSON of a command about this run, which must succeed."""
        ended = dyad(self.home, name, "--json", *args)
        expect(ended.returncode == 0, f"expected dyad {name} to succeed: {ended.stdout[-3000:]}{ended.stderr}")
        return ended.stdout

    def expect_success(self, steps, gap=1e-4):
        """Checks the end of a run: exit code, batches, log-probs and books. Returns the books."""
        code = self.wait()
        expect(code == 0, f"expected exit code 0, but it was {code}: {self.output()[-3000:]}")
        lines = self.trained(self.lead)
        expect(len(lines) == steps, f"expected {steps} batches of {self.lead}, but there are {len(lines)}")
        gaps = [line["mismatch/on_policy_gap"] for agent in "ab" for line in self.trained(agent)]
        expect(max(gaps) <= gap, f"expected log-probs within {gap} of the trainer's, but the gaps are {gaps}")
        expect(any(gaps), "expected tokens of the newest weights, but there are none")
        audit = json.loads(self.command("audit"))
        for agent, counts in audit["agents"].items():
            bad = {key: counts[key] for key in ("twice", "partial", "missing") if counts[key]}
            expect(not bad, f"expected every sample of {agent} once, but: {bad}")
        books = audit["books"]
        expect(not books["dead"] and not books["broken"], f"expected no dead or broken tasks: {books}")
        return books
