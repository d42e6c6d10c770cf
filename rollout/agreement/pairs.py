#!/usr/bin/env python3
"""Writes pairs of an answer and a label whose verdict is known by construction.

    python3 rollout/agreement/pairs.py target/agreement/pairs.jsonl

Each line has `kind` (of grader), `class`, `text`, `label` and `want`. The generator is seeded: every
call writes the same bytes. Half of each class are equal values in different spellings (want true).
The others are near misses: one digit, sign, bracket, letter or place changed (want false).

Left out, because people argue about them:

- rounding: a decimal for an exact value, fewer digits than the label, 3.14 for pi
- a percentage against the bare number (25 for 25%), or a label of 0.25 against 25%
- the right number with another unit; 2 for a label in words such as 2 million, and the reverse
- a number in another base without its base, the digits of a base without the base
- (1,2) as an interval beside its inequality, for it can be a point
- a column for a row, a tuple for a vector, a vector in components
- an angle, segment or figure named backwards or from another corner
- a correct value in an earlier box beside a last box that was cut off
- an answer in reasoning that never gives a final one
"""
import argparse
import json
import pathlib
import random

# Each of these registers its classes when it is imported; the order of the file follows.
import single_numbers  # noqa: F401
import structures  # noqa: F401
import formulas  # noqa: F401
import choices  # noqa: F401
import whole_texts  # noqa: F401
import further  # noqa: F401
from frames import frame
from item import CLASSES

DISTRACTION = "A first guess was ${}$, but it fails the check.\n"


def distraction(rng, label):
    """Returns a sentence that rejects the label's value; only plain labels fit into it."""
    if not isinstance(label, str) or len(label) > 40 or any(sign in label for sign in ("\n", "boxed", "$", "<", '"', "answer")):
        return ""
    return DISTRACTION.format(label)


def rows(seed, kind, name, count, make):
    """Yields the rows of a class without repeats, right and wrong in turn."""
    rng = random.Random(f"{seed} {kind} {name}")
    seen, made, tries = set(), 0, 0
    while made < count and tries < 40 * count:
        tries += 1
        item = make(rng)
        want = made % 2 == 0
        form = rng.choice(item.right if want else item.wrong)
        label = rng.choice(item.labels)
        text = item.texts(rng, form) if item.texts else frame(rng, form, item.bare)
        if not want and item.texts is None and not text.startswith(("\\boxed", "<", "#")) and rng.random() < 0.15:
            text = distraction(rng, label) + text
        key = (text, json.dumps(label))
        if key not in seen:
            seen.add(key)
            made += 1
            yield {"kind": kind, "class": name, "text": text, "label": label, "want": want}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other pairs of the same classes")
    args = parser.parse_args()
    out = args.file
    out.parent.mkdir(parents=True, exist_ok=True)
    total = 0
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        for one in CLASSES:
            for row in rows(args.seed, *one):
                print(json.dumps(row, ensure_ascii=False), file=file)
                total += 1
    print(f"{total} pairs of {len(CLASSES)} classes in {out}")


if __name__ == "__main__":
    main()
