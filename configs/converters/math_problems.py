#!/usr/bin/env python3
"""Turns DAPO or DeepScaleR lines into tasks for dyad: {"prompt": problem, "label": answer}.

    python3 configs/converters/math_problems.py < dapo-math-17k.jsonl > math.jsonl

Reads JSON objects, one a line, of any of these shapes from stdin, and writes tasks to stdout:

    {"prompt": [{"role": "user", "content": ".."}], "label": "34"}    DAPO in slime's layout
    {"prompt": [..], "reward_model": {"ground_truth": "34"}}          DAPO in verl's layout
    {"prompt": "..", "solution": "\\boxed{34}"}                       DAPO filtered
    {"problem": "..", "answer": "34", "solution": ".."}               DeepScaleR

A repeated problem is written once (DAPO's file has each a hundred times). The workflow's prompts
contain the instructions how to answer, so those of the data set are removed; --keep-instructions
keeps them. A line that cannot be used is named on stderr and left out; the exit code is then 1. For
Parquet first run `pandas.read_parquet(..).to_json(.., orient="records", lines=True)`.
"""
import argparse
import json
import math
import re
import sys

# Instructions before and after a problem in the data sets.
BEFORE = re.compile(r"\A\s*Solve the following math problem step by step\..*?(?:\n\s*\n|\Z)", re.S)
BEHIND = re.compile(
    r"(?<!\s)\s*(?:Remember to put your answer on its own line after \"Answer:\"\.?"
    r"|(?:Please reason|Let's think) step by step[^\n]*"
    r"|Please put your final answer within[^\n]*)\s*\Z"
)


def text_of(prompt):
    """Returns the problem in a prompt: a text, or the last message of the user."""
    if isinstance(prompt, list):
        said = [message.get("content") for message in prompt if isinstance(message, dict) and message.get("role") == "user"]
        prompt = said[-1] if said else None
    return prompt if isinstance(prompt, str) else None


def bare(problem):
    """Returns the problem without the instructions how to answer."""
    return BEHIND.sub("", BEFORE.sub("", problem)).strip()


def unboxed(solution):
    """Returns the text in the last closed \\boxed{..}, or None."""
    start = solution.rfind("\\boxed{")
    depth = 0
    for at in range(start + 6, len(solution)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(solution[at], 0)
        if depth == 0:
            return solution[start + 7 : at]
    return None


def answer_of(line):
    """Returns the answer of a line: its own label, else the boxed text of its solution."""
    judged = line.get("reward_model")
    given = [line.get("label"), line.get("answer"), judged.get("ground_truth") if isinstance(judged, dict) else None]
    for answer in given:
        if isinstance(answer, float) and not math.isfinite(answer):
            continue
        if isinstance(answer, (str, int, float)) and not isinstance(answer, bool) and str(answer).strip():
            return str(answer).strip()
    solution = line.get("solution")
    if isinstance(solution, str) and solution.strip():
        found = unboxed(solution)
        # A solution of one word is an answer; prose without a box has no certain answer.
        return found if found is not None else (solution.strip() if len(solution.split()) == 1 else None)
    return None


def task(line, keep):
    """Returns the task of a line; a ValueError names the missing part."""
    problem = next((text for key in ("prompt", "problem", "question") if (text := text_of(line.get(key)))), None)
    problem = problem and (problem.strip() if keep else bare(problem))
    if not problem:
        raise ValueError("it has no text under prompt, problem or question")
    answer = answer_of(line)
    if not answer:
        raise ValueError("it has no answer under label, answer, reward_model.ground_truth or boxed in solution")
    return {"prompt": problem, "label": answer}


def lines(file):
    """Yields (number, bytes) of every line that is not blank, without byte-order mark."""
    for number, line in enumerate(file, 1):
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if line.strip():
            yield number, line


def refuse(constant):
    """Raises a ValueError for NaN and infinity, which Python reads and JSON does not have."""
    raise ValueError(f"it has {constant}, which is no JSON value")


def read(line):
    """Returns the object of a line; a ValueError names the reason why there is none."""
    found = json.loads(line.decode("utf-8"), parse_constant=refuse)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def written(made):
    """Returns a line of JSON as bytes. A lone surrogate and NaN raise a ValueError."""
    return json.dumps(made, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def main():
    parser = argparse.ArgumentParser(description="DAPO or DeepScaleR lines to tasks for dyad, from stdin to stdout")
    parser.add_argument("--keep-instructions", action="store_true", help="keep the instructions how to answer")
    keep = parser.parse_args().keep_instructions
    seen, bad = set(), 0
    for number, line in lines(sys.stdin.buffer):
        try:
            made = task(read(line), keep)
            text = written(made)
        except (ValueError, RecursionError) as error:  # the second for lines that nest too deep
            bad += 1
            print(f"line {number}: {error}", file=sys.stderr)
            continue
        if made["prompt"] not in seen:
            seen.add(made["prompt"])
            sys.stdout.buffer.write(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
