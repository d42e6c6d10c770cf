#!/usr/bin/env python3
"""Compares dyad's graders with reference graders on the pairs of pairs.py, and writes the table.

    make agreement

The references' verdicts are kept beside the pairs and made again when pairs or versions change.
`--rllm FOLDER` names a checkout of DeepScaleR instead of fetching its file.
"""
import argparse
import collections
import hashlib
import importlib.metadata
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import references
import table
import workers

PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy", "verl", "lm_eval")
# PRIME's grader takes a quarter of a second for a grade, so it receives one pair in five.
SHARES = {"verl PRIME": 5}


def tasks_of(rows, graders):
    """Returns (name, row) for every grader and each row that it reads."""
    rng = random.Random(1)
    picked = {one: {i for i in range(len(rows)) if rng.randrange(share) == 0} for one, share in SHARES.items()}
    return [
        (name, i)
        for i, row in enumerate(rows)
        for name, grader in graders.items()
        if i in picked.get(name, (i,)) and references.reads(grader, name, row)
    ]


def of_references(args, rows, versions):
    """Returns (name, row's place, verdict, problem, seconds) of every reference, from the file if it is current."""
    code = b"".join((pathlib.Path(__file__).parent / name).read_bytes() for name in ("references.py", "workers.py"))
    digest = hashlib.sha256(args.pairs.read_bytes() + code + json.dumps(versions).encode()).hexdigest()
    kept = args.pairs.with_name("references.jsonl")
    if kept.exists():
        first, *lines = kept.read_text(encoding="utf-8").splitlines()
        if json.loads(first) == digest:
            return [json.loads(line) for line in lines]
    folder = references.rllm_folder(args.rllm)
    tasks = tasks_of(rows, references.graders(folder))
    results = workers.grade_all([(name, rows[i]) for name, i in tasks], references.graders, folder, args.limit, args.workers)
    found = [[*task, *result] for task, result in zip(tasks, results)]
    kept.write_text("\n".join(json.dumps(line) for line in [digest, *found]) + "\n", encoding="utf-8")
    return found


def of_dyad(args, rows):
    """Returns dyad's (name, row's place, verdict, problem, seconds), with its reasons by place."""
    found, reasons = [], {}
    classes = collections.defaultdict(list)
    for i, row in enumerate(rows):
        classes[row["class"]].append(i)
    file = args.pairs.with_name("class.jsonl")
    for name, places in classes.items():
        file.write_text("".join(json.dumps(rows[i], ensure_ascii=False) + "\n" for i in places), encoding="utf-8")
        began = time.perf_counter()
        run = subprocess.run([args.dyad, "grade", str(file), "--json"], capture_output=True, text=True)
        seconds = (time.perf_counter() - began) / len(places)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        if run.returncode not in (0, 1) or len(lines) != len(places) + 1:
            sys.exit(f"dyad grade of the class {name!r} ended with {run.returncode} after {len(lines)} lines: {run.stderr.strip()[-400:]}")
        for i, line in zip(places, lines):
            # A refused label has no reading.
            problem = "refused" if line.get("label") is None and line["score"] == 0 else None
            found.append(["dyad", i, line["score"] >= 0.5, problem, line.get("seconds", seconds)])
            reasons[i] = line
        if lines[-1]["summary"]["refused"] == 0:
            found[-len(places) :] = [[*one[:3], None, one[4]] for one in found[-len(places) :]]
    return found, reasons


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=pathlib.Path)
    parser.add_argument("--dyad", default="target/debug/dyad", help="the binary; '' leaves dyad out")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "TABLE.md")
    parser.add_argument("--rllm", help="a checkout of %s at %s" % references.RLLM[:2])
    parser.add_argument("--limit", type=float, default=5, help="seconds for a grade of a reference")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.pairs.read_text(encoding="utf-8").split("\n") if line]
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    found = of_references(args, rows, versions)
    reasons = {}
    if args.dyad:
        ours, reasons = of_dyad(args, rows)
        found = ours + found
    args.out.write_text(table.page(rows, found, versions), encoding="utf-8")
    args.pairs.with_name("errors.md").write_text(table.errors(rows, found, reasons), encoding="utf-8")
    args.pairs.with_name("unanimous.md").write_text(table.unanimous(rows, found), encoding="utf-8")
    print(f"{args.out}; every grader's errors, and pairs on which all references differ from the truth: {args.pairs.parent}")


if __name__ == "__main__":
    main()
