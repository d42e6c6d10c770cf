#!/usr/bin/env python3
"""Writes a run's metrics, configuration and conversations to Weights & Biases.

    pip install wandb                       # and Python 3.11 or newer
    WANDB_MODE=offline python3 configs/converters/to_wandb.py runs/RUN [--project dyad]
    wandb sync wandb/offline-run-*          # later, with an account

Each process of the run is a group of charts over its own steps, named as in TensorBoard:
`a/reward/mean`, `coordinator/success` of training, `coordinator/eval/success` of evaluations. The
table `conversations` has the recorded transcripts, at most --conversations of them, the newest last.
`wandb sync` itself reads no TensorBoard files any more (wandb 0.30).
"""
import argparse
import json
import pathlib
import sys
import tomllib

try:
    import wandb
except ImportError:
    sys.exit("to_wandb.py needs the package wandb: pip install wandb")

# The kinds of lines with figures that have no prefix.
PLAIN = ("train", "conversations")


def records(path):
    """The objects of a JSON-lines file. A run that goes on may have half a line at the end."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def name_of(path):
    """`coordinator-b3626563` is the coordinator: another one may have taken its place later."""
    return "coordinator" if path.stem.startswith("coordinator-") else path.stem


def metrics(folder, run):
    by_process = {}
    for path in sorted(folder.glob("metrics/*.jsonl")):
        if path.stem != "summary":
            by_process.setdefault(name_of(path), []).extend(records(path))
    if not by_process:
        sys.exit(f"{folder} has no metrics/*.jsonl: name the folder of a run, such as runs/signal-2b707e80")
    for process, lines in by_process.items():
        run.define_metric(f"{process}/*", step_metric=f"{process}/step")
        for line in lines:
            before = process if line["kind"] in PLAIN else f"{process}/{line['kind']}"
            numbers = {key: value for key, value in line.items() if isinstance(value, (int, float)) and key != "step"}
            run.log({f"{before}/{key}": value for key, value in numbers.items()} | {f"{process}/step": line["step"]})


def conversations(folder, run, most):
    table = wandb.Table(columns=["step", "conversation", "task", "eval", "text", "rewards"])
    lines = [line for path in sorted(folder.glob("transcripts/*.jsonl")) for line in records(path)]
    for line in lines[-most:]:
        text = "\n".join(f"{turn['role']} ({turn['agent']}): {turn.get('text', '')}" for turn in line["turns"])
        rewards = {role: parts.get("total") for role, parts in line["rewards"].items()}
        table.add_data(line["step"], line["conversation"], line["task"], line.get("eval", False), text, json.dumps(rewards))
    run.log({"conversations": table})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="the folder of a run")
    parser.add_argument("--project", default="dyad")
    parser.add_argument("--conversations", type=int, default=1000)
    given = parser.parse_args()
    config = tomllib.loads((given.folder / "config.toml").read_text())
    with wandb.init(project=given.project, name=given.folder.resolve().name, config=config) as run:
        metrics(given.folder, run)
        conversations(given.folder, run, given.conversations)


if __name__ == "__main__":
    main()
