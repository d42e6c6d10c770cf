#!/usr/bin/env python3
"""Turns MTMedDialog-style lines into cases for the workflow doctor-patient.

    python3 configs/converters/doctor_patient.py < MTMedDialog_RL.jsonl > cases.jsonl

Reads JSON objects, one a line, from stdin, and writes cases to stdout:

    {"prompt": complaint, "label": {"diagnosis": "..", "recommendation": ".."},
     "metadata": {"self_report": ".."}}

The converter looks for each part under these keys, in this order:

complaint
    extra_info.chief_complaint, metadata.chief_complaint, chief_complaint, self_report of a test
    file, else the user's last message in prompt or messages. In instructions it is the text between
    `Patient's description:` and `Decide next action:`.
diagnosis, recommendation
    extra_info.solution, metadata.solution, reward_model.ground_truth, label: an object, or a text
    with `Diagnosis:` and `Recommendation:`
self report
    extra_info.self_report, metadata.self_report, reward_model.enhanced_description,
    enhanced_description
facts
    metadata.facts, if there are any: with them a rule can judge the patient

--complaint, --solution and --report name other keys, with dots. A line that cannot be used is named
on stderr and left out; the exit code is then 1. For Parquet first run
`pandas.read_parquet(..).to_json(.., orient="records", lines=True)`.
"""
import argparse
import json
import re
import sys

COMPLAINT = ["extra_info.chief_complaint", "metadata.chief_complaint", "chief_complaint", "self_report"]
SOLUTION = ["extra_info.solution", "metadata.solution", "reward_model.ground_truth", "label"]
REPORT = ["extra_info.self_report", "metadata.self_report", "reward_model.enhanced_description", "enhanced_description"]
MARKED = re.compile(r"(diagnosis|recommendation)s?\s*[:：]\s*(.*?)(?=(?:diagnosis|recommendation)s?\s*[:：]|\Z)", re.I | re.S)

# The marks before and after the complaint in instructions that contain it.
DESCRIBED, ASKED = "Patient's description:", "Decide next action:"
# The start of a message in a prompt that a chat template has rendered.
RENDERED = "<|im_start|>"


def at(line, path):
    """Returns the value under a path with dots, or None."""
    for key in path.split("."):
        line = line.get(key) if isinstance(line, dict) else None
    return line


def first(line, paths):
    return next((found for path in paths if (found := at(line, path))), None)


def complaint_of(line, paths):
    found = first(line, paths)
    if isinstance(found, str):
        return found.strip()
    prompt = line.get("prompt") or line.get("messages")
    if isinstance(prompt, list):
        said = [message.get("content") for message in prompt if isinstance(message, dict) and message.get("role") == "user"]
        prompt = said[-1] if said else None
    return described(prompt) if isinstance(prompt, str) else None


def described(prompt):
    """Returns the complaint in a prompt: the patient's description, else all of it."""
    _, marked, complaint = prompt.rpartition(ASKED)[0].rpartition(DESCRIBED)
    if RENDERED in (complaint or prompt):
        raise ValueError(f"its prompt is a rendered chat ({RENDERED}) without a text from {DESCRIBED!r} to {ASKED!r}")
    return complaint.strip() if marked else prompt.strip()


def label_of(solution):
    """Returns {"diagnosis", "recommendation"} of an object or a marked text.

    Without markers the whole text is the diagnosis.
    """
    if isinstance(solution, dict):
        found = {key.lower(): value for key, value in solution.items() if isinstance(value, str)}
    elif isinstance(solution, str):
        found = {key.lower(): value for key, value in MARKED.findall(solution)} or {"diagnosis": solution}
    else:
        return None
    label = {key: found[key].strip() for key in ("diagnosis", "recommendation") if found.get(key, "").strip()}
    return label if "diagnosis" in label else None


def case(line, keys):
    """Returns the case of a line; a ValueError names the missing part."""
    parts = {
        "complaint": complaint_of(line, keys.complaint),
        "diagnosis": label_of(first(line, keys.solution)),
        "self report": first(line, keys.report),
    }
    missing = [name for name, value in parts.items() if not value]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    metadata = {"self_report": str(parts["self report"]).strip()}
    facts = at(line, "metadata.facts")
    if isinstance(facts, dict):
        metadata["facts"] = facts
    return {"prompt": parts["complaint"], "label": parts["diagnosis"], "metadata": metadata}


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
    parser = argparse.ArgumentParser(description="MTMedDialog-style lines to cases for dyad, from stdin to stdout")
    for name, paths in (("complaint", COMPLAINT), ("solution", SOLUTION), ("report", REPORT)):
        parser.add_argument(f"--{name}", type=lambda key: [key], default=paths, metavar="KEY")
    keys, bad = parser.parse_args(), 0
    for number, line in lines(sys.stdin.buffer):
        try:
            sys.stdout.buffer.write(written(case(read(line), keys)))
        except (ValueError, RecursionError) as error:  # the second for lines that nest too deep
            bad += 1
            print(f"line {number}: {error}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
