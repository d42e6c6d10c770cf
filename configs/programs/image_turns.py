"""Pictures over several turns, as your own workflow.

`eye` is played by an agent with vision. It receives the task's picture, and in its second turn the
one under metadata.second; its server then has both in the chat. `reader` reads text only and
receives the last words of `eye`. Lines in and out are those of solve_verify.py; a question to a role
may have `messages` with images instead of a prompt.
"""
import json
import sys


def picture(url, text):
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]}


def step(task, events):
    said = lambda role: [event["text"].strip() for event in events if event["role"] == role]
    eye, reader = said("eye"), said("reader")
    if not eye:
        return {"ask": [{"role": "eye", "messages": task["prompt"]}]}
    if len(eye) == 1:
        return {"ask": [{"role": "eye", "messages": [picture(task["metadata"]["second"], "and with this one?")]}]}
    if not reader:
        return {"ask": [{"role": "reader", "prompt": eye[1]}]}
    right = float(reader[0] == task["label"])
    metrics = {"success": right, "seen": float(eye[1] == task["label"])}
    return {"done": {"rewards": [{"role": "reader", "parts": {"reward": right}}], "metrics": metrics}}


for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], **step(asked["task"], asked["events"])}), flush=True)
