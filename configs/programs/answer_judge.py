"""Judges whether an answer means the same as the label: 1 or 0.

A large model behind an OpenAI-compatible server decides. JUDGE_MODEL, JUDGE_KEY and JUDGE_URL (for
example http://host:8000/v1) name it. A failure is an error, never a 0.
"""
import json
import os
import re
import sys
import urllib.error
import urllib.request

PROMPT = """QUESTION: {question}
RIGHT ANSWER (of several, each is right): {label}
GIVEN ANSWER: {answer}

Does the given answer mean the same as the right one? Reply with one JSON object: {{"same": true}} or {{"same": false}}."""


def asked(prompt):
    """Returns the question of a task: a text, or its messages, with roles if there are several.

    Instructions are left out.
    """
    if isinstance(prompt, str):
        return prompt
    said = [message for message in prompt if message["role"] != "system"]
    if len(said) < 2:
        return prompt[-1]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in said)


def ask(body, headers):
    request = urllib.request.Request(os.environ["JUDGE_URL"] + "/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=50) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        # Some models have one temperature only.
        if error.code != 400 or "temperature" not in body or b"temperature" not in error.read():
            raise
        return ask({key: value for key, value in body.items() if key != "temperature"}, headers)


def judge(text, task):
    given = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    prompt = PROMPT.format(question=asked(task["prompt"]), label=json.dumps(task["label"]), answer=given[-1] if given else text)
    body = {"model": os.environ["JUDGE_MODEL"], "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("JUDGE_KEY", "")}
    said = ask(body, headers)["choices"][0]["message"]["content"]
    same = re.findall(r'"same"\s*:\s*(true|false)', said)
    if not same:
        raise ValueError("the judge's reply has no \"same\"")
    return 1.0 if same[-1] == "true" else 0.0


for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = {"reward": judge(question["text"], question["task"])}
    except Exception as error:  # any failure of the server or its answer is a missing reward
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"id": question["id"], **answer}), flush=True)
