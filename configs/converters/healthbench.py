"""Makes tasks for `self-reward` of questions in HealthBench's format.

    python3 configs/converters/healthbench.py questions.jsonl [--leave-out hard.jsonl] > tasks.jsonl

One JSON object a line in: {"prompt_id", "prompt": [{"role", "content"}, ..], "rubrics": [{"criterion", "points", ..}, ..]}.
One task a line out: {"id", "prompt", "label": "", "metadata": {"rubric": [{"criterion", "points"}, ..]}}.
--leave-out names a file of questions that are not to be trained on, such as a benchmark's own: those with the same prompt_id are left
out. A question that cannot be a task is named on standard error and left out too; if any is, the exit code is 1.
"""
import argparse
import json
import sys

MOST = 256  # items of a rubric that one answer can be judged by


def lines(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def messages(prompt):
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    found = [{"role": one["role"], "content": one["content"]} for one in prompt]
    if not found or found[-1]["role"] != "user":
        raise ValueError("the last message is not the user's")
    if any(one["role"] not in ("system", "user", "assistant") or not isinstance(one["content"], str) for one in found):
        raise ValueError("a message is not a text of system, user or assistant")
    return found


def task(question):
    rubric = []
    for item in question["rubrics"]:
        points = item["points"]
        if isinstance(points, bool) or not isinstance(points, (int, float)) or abs(points) == float("inf") or points != points:
            raise ValueError(f"an item has {points!r} points")
        rubric.append({"criterion": str(item["criterion"]), "points": points})
    if not 1 <= len(rubric) <= MOST:
        raise ValueError(f"the rubric has {len(rubric)} items; 1 to {MOST} can be judged")
    if not any(item["points"] > 0 for item in rubric):
        raise ValueError("no item has positive points, so there is nothing to reach")
    return {
        "id": str(question["prompt_id"]),
        "prompt": messages(question["prompt"]),
        "label": "",  # the rubric is what there is to reach
        "metadata": {"rubric": rubric},
    }


def main():
    parser = argparse.ArgumentParser(description="Tasks for self-reward of questions in HealthBench's format.")
    parser.add_argument("questions")
    parser.add_argument("--leave-out", metavar="FILE")
    args = parser.parse_args()
    left_out = set()
    if args.leave_out:
        left_out = {str(json.loads(line)["prompt_id"]) for _, line in lines(args.leave_out)}
    bad = 0
    for number, line in lines(args.questions):
        try:
            question = json.loads(line)
            if str(question["prompt_id"]) in left_out:
                continue
            print(json.dumps(task(question), ensure_ascii=False))
        except (ValueError, KeyError, TypeError) as error:
            bad += 1
            print(f"{args.questions}, line {number}: {type(error).__name__}: {error}", file=sys.stderr)
    return 1 if bad else 0


sys.exit(main())
