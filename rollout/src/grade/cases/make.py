#!/usr/bin/env python3
"""Writes cases.jsonl: the pairs of pairs.txt, in both orders, and what the reference graders say of each, by running them.

    python3 -m venv venv
    venv/bin/pip install math-verify==0.9.0 latex2sympy2_extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0 pylatexenc==2.11
    venv/bin/python make.py > cases.jsonl

clones the graders' repositories into a folder of its own; `--rllm FOLDER` and `--verl FOLDER` name checkouts that are there already.
Nothing of them is part of this project. The columns:

    math_verify       math_verify.verify(parse(label), parse(answer)), both in \\boxed{}
    deepscaler_mathd  DeepScaleR's grade_answer_mathd(answer, label): texts after Hendrycks' normalisation
    deepscaler_sympy  its grade_answer_sympy(answer, label); training pays where either of the two says yes
    dapo_minerva      DAPO's compute_score of "Answer: ANSWER", as it trains: texts after Minerva's normalisation
    dapo_strict_box   the same with strict_box_verify, of \\boxed{ANSWER}: the texts as they are
"""
import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

# Name, repository, commit, and the one file of it that is run.
RLLM = ("rllm", "https://github.com/agentica-project/rllm", "874daa4acb7f451dc2a4b2b6e8ce28f5aa88d1f5", "rllm/rewards/math_utils/utils.py")
VERL = ("verl", "https://github.com/volcengine/verl", "b178a3cd56f58b2d502255daba591e92833930a7", "verl/utils/reward_score/math_dapo.py")


def checkout(repository, commit, folder):
    """Fetches one commit of a repository, without its history."""
    for command in (["init", "-q"], ["fetch", "-q", "--depth", "1", repository, commit], ["checkout", "-q", "FETCH_HEAD"]):
        subprocess.run(["git", "-C", folder, *command], check=True)


def load(grader, folder):
    """The grader's module, by its file alone: nothing else of its package is imported."""
    name, repository, commit, path = grader
    if folder is None:
        folder = tempfile.mkdtemp(prefix=name)
        checkout(repository, commit, folder)
    spec = importlib.util.spec_from_file_location("reference_" + name, pathlib.Path(folder) / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pairs(text):
    """(group, label, answer) of each line, then with the two changed over; each once."""
    group, seen = None, set()
    for line in text.splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif line:
            one, other = (part.strip() for part in line.split(" | ", 1))
            for label, answer in ((one, other), (other, one)):
                if (label, answer) not in seen:
                    seen.add((label, answer))
                    yield group, label, answer


def safely(grade, *texts):
    """A grader that fails on an answer does not pay for it."""
    try:
        return bool(grade(*texts))
    except Exception:
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rllm", help="a checkout of %s at %s" % RLLM[1:3])
    parser.add_argument("--verl", help="a checkout of %s at %s" % VERL[1:3])
    args = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    from math_verify import parse, verify

    deepscaler, dapo = load(RLLM, args.rllm), load(VERL, args.verl)

    def by_math_verify(label, answer):
        gold, found = (parse("\\boxed{%s}" % text, parsing_timeout=None) for text in (label, answer))
        return verify(gold, found, timeout_seconds=None)

    def by_deepscaler(grade):
        return lambda label, answer: grade(deepscaler.extract_answer("\\boxed{%s}" % answer), label)

    graders = {
        "math_verify": by_math_verify,
        "deepscaler_mathd": by_deepscaler(deepscaler.grade_answer_mathd),
        "deepscaler_sympy": by_deepscaler(deepscaler.grade_answer_sympy),
        "dapo_minerva": lambda label, answer: dapo.compute_score("Answer: " + answer, label)["acc"],
        "dapo_strict_box": lambda label, answer: dapo.compute_score("\\boxed{%s}" % answer, label, True)["acc"],
    }
    text = (pathlib.Path(__file__).parent / "pairs.txt").read_text(encoding="utf-8")
    total = 0
    for group, label, answer in pairs(text):
        said = {name: safely(grade, label, answer) for name, grade in graders.items()}
        print(json.dumps({"group": group, "label": label, "answer": answer, **said}, ensure_ascii=False))
        total += 1
    print(total, "cases", file=sys.stderr)


if __name__ == "__main__":
    main()
