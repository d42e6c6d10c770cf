"""Judges a patient by a large model behind an OpenAI-compatible server: the sum of three marks, 0 to 3.

JUDGE_URL (such as http://host:8000/v1), JUDGE_MODEL and JUDGE_KEY say where. What fails is an error, and never a mark.
"""
import json
import os
import re
import sys
import urllib.request

MARKS = ("information_control", "response_completeness", "no_conflict")
PROMPT = """A patient, who knows only what stands under CASE, talked to a doctor. Mark the patient's replies from 0 to 1, taking
0.2 for each fault: information_control (tells only what was asked), response_completeness (tells all that was asked and is
known), no_conflict (says nothing that contradicts the case). Answer with one JSON object of these three numbers.

CASE: {case}

DIALOGUE:
{text}"""


def mark(text, task):
    prompt = PROMPT.format(case=task["metadata"]["self_report"], text=text)
    body = {"model": os.environ["JUDGE_MODEL"], "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("JUDGE_KEY", "")}
    request = urllib.request.Request(os.environ["JUDGE_URL"] + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=100) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    marks = json.loads(re.findall(r"\{[^{}]*\}", said)[-1])
    return sum(min(1.0, max(0.0, float(marks[name]))) for name in MARKS)


for line in sys.stdin:
    question = json.loads(line)
    try:
        answer = {"reward": mark(question["text"], question["task"])}
    except Exception as error:  # the server, its answer: all of it is a missing reward
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"id": question["id"], **answer}), flush=True)
