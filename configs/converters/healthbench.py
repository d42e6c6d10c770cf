"""Turns questions in HealthBench's format into tasks for `self-reward`.

    python3 configs/converters/healthbench.py questions.jsonl \\
        [--leave-out hard.jsonl] > tasks.jsonl

Reads one JSON object a line:
    {"prompt_id", "prompt": [{"role", "content"}, ..], "rubrics": [{"criterion", "points", ..}, ..]}
Writes one task a line:
    {"id", "prompt", "label": "", "metadata": {"rubric": [{"criterion", "points"}, ..]}}

--leave-out names a file of questions that must not be trained, for example those of a benchmark.
Questions with the same prompt_id are left out. A question that cannot become a task is named on
standard error and left out. A line of --leave-out without a question is named too. In both cases
the exit code is 1.
"""
import argparse
import json
import sys

MOST = 256  # items of a rubric for one answer
LARGEST = 1e308  # points on either side; NaN and infinity are not between


def lines(path):
    """Yields (number, bytes) of every line that is not blank, without byte-order mark."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if line.strip():
                yield number, line


def refuse(constant):
    """Raises a ValueError for NaN and infinity, which Python reads and JSON does not have."""
    raise ValueError(f"it has {constant}, which is no JSON value")


def questions(path, bad):
    """Yields (number, question, id) of lines with an id; others are named and added to `bad`."""
    for number, line in lines(path):
        try:
            question = json.loads(line.decode("utf-8"), parse_constant=refuse)
            if not isinstance(question, dict):
                raise ValueError("it is no JSON object")
            name = question.get("prompt_id")
            if isinstance(name, bool) or not isinstance(name, (str, int)) or not str(name):
                raise ValueError("it has no prompt_id")
            yield number, question, str(name)
        except (ValueError, RecursionError) as error:  # the second for lines that nest too deep
            odd(path, number, error, bad)


def odd(path, number, error, bad):
    bad.append(number)
    print(f"{path}, line {number}: {error}", file=sys.stderr)


def listed(question, key):
    """Returns the objects of the list under a key."""
    found = question.get(key)
    if not isinstance(found, list) or any(not isinstance(one, dict) for one in found):
        raise ValueError(f"{key} is no list of objects")
    return found


def messages(question):
    prompt = question.get("prompt")
    found = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else listed(question, "prompt")
    found = [{"role": one.get("role"), "content": one.get("content")} for one in found]
    if not found or found[-1]["role"] != "user":
        raise ValueError("the last message is not the user's")
    if any(one["role"] not in ("system", "user", "assistant") or not isinstance(one["content"], str) for one in found):
        raise ValueError("a message is not a text of system, user or assistant")
    return found


def task(question, name):
    rubric = []
    for item in listed(question, "rubrics"):
        points = item.get("points")
        if isinstance(points, bool) or not isinstance(points, (int, float)) or not -LARGEST <= points <= LARGEST:
            raise ValueError(f"an item has {repr(points)[:40]} points")
        if item.get("criterion") is None:
            raise ValueError("an item has no criterion")
        rubric.append({"criterion": str(item["criterion"]), "points": points})
    if not 1 <= len(rubric) <= MOST:
        raise ValueError(f"the rubric has {len(rubric)} items; 1 to {MOST} can be judged")
    if not any(item["points"] > 0 for item in rubric):
        raise ValueError("no item has positive points, so there is nothing to reach")
    return {
        "id": name,
        "prompt": messages(question),
        "label": "",  # the rubric is the label
        "metadata": {"rubric": rubric},
    }


def main():
    parser = argparse.ArgumentParser(description="Tasks for self-reward of questions in HealthBench's format.")
    parser.add_argument("questions")
    parser.add_argument("--leave-out", metavar="FILE")
    args = parser.parse_args()
    bad = []
    left_out = {name for _, _, name in questions(args.leave_out, bad)} if args.leave_out else set()
    for number, question, name in questions(args.questions, bad):
        if name in left_out:
            continue
        try:
            # A lone surrogate cannot be encoded.
            text = json.dumps(task(question, name), ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            odd(args.questions, number, error, bad)
            continue
        sys.stdout.buffer.write(text + b"\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
