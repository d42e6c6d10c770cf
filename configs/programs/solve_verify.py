"""solve-verify as your own workflow: a solver, a verifier, and a retry after a rejection.

One line in:
    {"id", "kind": "step", "seed", "params", "task",
     "events": [{"role", "seat", "turn", "text", ...}]}
One line out:
    {"id", "ask": [{"role", "prompt"}]}
    or {"id", "done": {"rewards": [{"role", "parts"}], "metrics"}}
"""
import json
import re
import sys


def step(task, said):
    prompt, right = task["prompt"], lambda role: float(re.findall(r"-?\d+", said[role])[-1:] == [str(task["label"])])
    if "solver" not in said:
        return {"ask": [{"role": "solver", "prompt": prompt}]}
    if "verifier" not in said:
        return {"ask": [{"role": "verifier", "prompt": f"{prompt}{said['solver']}?"}]}
    words = [word for word in ("approve", "reject") if re.search(rf"\b{word}\b", said["verifier"].lower())]
    rejected, s1 = words == ["reject"], right("solver")
    if rejected and "retry" not in said:
        return {"ask": [{"role": "retry", "prompt": f"{prompt}{said['solver']}!{said['verifier']}"}]}
    s2 = right("retry") if rejected else s1
    check = {"verdict": float(len(words) == 1 and rejected == (s1 < 0.5)), "gain": s2 - s1}
    parts = {"solver": {"correct": s1}, "verifier": check, "retry": {"correct": s2, "gain": s2 - s1}}
    rewards = [{"role": role, "parts": parts[role]} for role in said]
    return {"done": {"rewards": rewards, "metrics": {"success": s2, "solver_first": s1, "retry_rate": float(rejected)}}}


for line in sys.stdin:
    asked = json.loads(line)
    said = {event["role"]: event["text"] for event in asked["events"]}
    print(json.dumps({"id": asked["id"], **step(asked["task"], said)}), flush=True)
