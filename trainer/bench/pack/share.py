"""Two agents take turns; each earns the share of ASCII characters in its texts. For random models."""
import json
import sys

ROLES = ("asker", "answerer")


def step(task, events):
    if len(events) < 4:
        prompt = events[-1]["text"] if events else task["prompt"]
        return {"ask": [{"role": ROLES[len(events) % 2], "prompt": prompt}]}
    rewards = []
    for role in ROLES:
        text = "".join(event["text"] for event in events if event["role"] == role)
        share = sum(letter.isascii() for letter in text) / max(1, len(text))
        rewards.append({"role": role, "parts": {"ascii": share}})
    return {"done": {"rewards": rewards, "metrics": {"success": rewards[0]["parts"]["ascii"]}}}


for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], **step(asked["task"], asked["events"])}), flush=True)
