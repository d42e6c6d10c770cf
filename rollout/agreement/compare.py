#!/usr/bin/env python3
"""Compares dyad's graders with reference graders on the pairs of pairs.py, and writes the table.

    make agreement

The references' verdicts are kept and made again when graders or versions change.
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

import references
import table
import workers

PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy", "verl", "lm_eval")
# PRIME's grader is slow, so it receives one pair in ten.
SHARES = {"verl PRIME": 10}


def key(row):
    """Returns a short name of the pair, which stays when others come or go."""
    return hashlib.sha256(json.dumps([row["kind"], row["text"], row["label"]]).encode()).hexdigest()[:20]


def tasks_of(rows, graders):
    """Returns (name, row's place) for every grader and each row that it receives."""
    return [
        (name, i)
        for i, row in enumerate(rows)
        for name, grader in graders.items()
        if int(key(row), 16) % SHARES.get(name, 1) == 0 and references.reads(grader, name, row)
    ]


def of_references(args, rows, versions):
    """Returns (name, row's place, verdict, problem, seconds) of every reference, and what is missing.

    The file beside the pairs keeps each verdict when it is made, so an interrupted run goes on.
    """
    code = b"".join((pathlib.Path(__file__).parent / name).read_bytes() for name in ("references.py", "workers.py"))
    digest = hashlib.sha256(code + json.dumps(versions).encode()).hexdigest()
    kept, found = args.pairs.with_name("references.jsonl"), {}
    first, *lines = kept.read_text(encoding="utf-8").split("\n")[:-1] if kept.exists() else [""]
    if first == digest:
        found = {(name, pair): result for name, pair, *result in map(json.loads, lines)}
    else:
        kept.write_text(digest + "\n", encoding="utf-8")
    folder = references.rllm_folder(args.rllm)
    keys = [key(row) for row in rows]
    tasks = tasks_of(rows, references.graders(folder))
    if not args.kept_only:
        todo = [(name, i) for name, i in tasks if (name, keys[i]) not in found]
        # In random order the verdicts of an interrupted run are a fair sample.
        random.Random(2).shuffle(todo)
        with open(kept, "a", encoding="utf-8") as file:

            def keep(task, result):
                found[task[0], keys[task[1]]] = result
                print(json.dumps([task[0], keys[task[1]], *result]), file=file, flush=True)

            workers.grade_all({task: (task[0], rows[task[1]]) for task in todo}, references.graders, folder, args.limit, args.workers, keep)
    done = [[name, i, *found[name, keys[i]]] for name, i in tasks if (name, keys[i]) in found]
    missing = f"Interrupted: {len(done)} of the others' {len(tasks)} grades, in random order." if len(done) < len(tasks) else None
    return done, missing


def of_dyad(args, rows):
    """Returns dyad's (name, row's place, verdict, problem, seconds), with its reasons by place."""
    found, reasons = [], {}
    classes = collections.defaultdict(list)
    for i, row in enumerate(rows):
        classes[row["class"]].append(i)
    file = args.pairs.with_name("class.jsonl")
    for name, places in classes.items():
        file.write_text("".join(json.dumps(rows[i], ensure_ascii=False) + "\n" for i in places), encoding="utf-8")
        run = subprocess.run([args.dyad, "grade", str(file), "--json"], capture_output=True, text=True)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        if run.returncode not in (0, 1) or len(lines) != len(places) + 1:
            sys.exit(f"dyad grade of the class {name!r} ended with {run.returncode} after {len(lines)} lines: {run.stderr.strip()[-400:]}")
        for i, line in zip(places, lines):
            # A refused label has no reading.
            problem = "refused" if line.get("label") is None and line["score"] == 0 else None
            found.append(["dyad", i, line["score"] >= 0.5, problem, line["seconds"]])
            reasons[i] = line
        if lines[-1]["summary"]["refused"] == 0:
            found[-len(places) :] = [[*one[:3], None, one[4]] for one in found[-len(places) :]]
    return found, reasons


def build(dyad):
    """Returns the kind of a binary's build by cargo's folder."""
    kind = pathlib.Path(dyad).resolve().parent.name
    return f"{kind if kind in ('debug', 'release') else 'other'} build" if dyad else "left out"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=pathlib.Path)
    parser.add_argument("--dyad", default="target/debug/dyad", help="the binary, such as target/release/dyad for its times; '' leaves dyad out")
    parser.add_argument("--rllm", help="a checkout of %s at %s" % references.RLLM[:2])
    parser.add_argument("--limit", type=float, default=5, help="processor seconds for a grade of a reference")
    parser.add_argument("--kept-only", action="store_true", help="the verdicts of an interrupted run, without new ones")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.pairs.read_text(encoding="utf-8").split("\n") if line]
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    found, missing = of_references(args, rows, versions)
    reasons = {}
    if args.dyad:
        ours, reasons = of_dyad(args, rows)
        found = ours + found
    # Only a whole run makes the page.
    out = args.pairs.with_name("TABLE.md") if missing else pathlib.Path(__file__).with_name("README.md")
    out.write_text(table.page(rows, found, versions, missing, build(args.dyad)), encoding="utf-8")
    args.pairs.with_name("errors.md").write_text(table.errors(rows, found, reasons), encoding="utf-8")
    args.pairs.with_name("unanimous.md").write_text(table.unanimous(rows, found), encoding="utf-8")
    print(f"{out}; every grader's errors, and pairs on which all references differ from the truth: {args.pairs.parent}")


if __name__ == "__main__":
    main()
