"""Your own reward: kind = "process:configs/programs/reward.py" under [graders.NAME].

One JSON line in:
    {"id", "kind": "grade", "role", "text", "task": {"prompt", "label", "metadata", ...}}.
One JSON line out: {"id", "reward"}

A reward of null, or {"id", "error"}, is a missing reward and never a 0.
"""
import json
import re
import sys


def reward(text, task):
    """Returns 1 for the right number, less 0.1 for each other word, but at least 0.5."""
    numbers = re.findall(r"-?\d+", text)
    if not numbers or int(numbers[-1]) != int(task["label"]):
        return 0.0
    return max(0.5, 1.0 - 0.1 * (len(text.split()) - 1))


for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({"id": question["id"], "reward": reward(question["text"], question["task"])}), flush=True)
