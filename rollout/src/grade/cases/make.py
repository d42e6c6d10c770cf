#!/usr/bin/env python3
"""Runs the reference graders and writes their verdicts.

cases.jsonl has the pairs of pairs.txt, in both orders. texts.jsonl has whole texts, in which each
grader finds the answer itself.

    python3 -m venv venv
    venv/bin/pip install math-verify==0.9.0 latex2sympy2_extended==1.11.0 antlr4-python3-runtime==4.13.2 sympy==1.14.0 pylatexenc==2.11
    venv/bin/python make.py

The script fetches the graders' files with git into a folder. `--rllm FOLDER` and `--verl FOLDER`
name existing checkouts instead. No part of them belongs to this project. The columns:

    math_verify       math_verify.verify(parse(label), parse(answer)), both in \\boxed{}
    deepscaler_mathd  DeepScaleR's grade_answer_mathd(answer, label): texts after Hendrycks'
                      normalisation
    deepscaler_sympy  its grade_answer_sympy(answer, label); training pays if either accepts
    dapo_minerva      DAPO's compute_score of "Answer: ANSWER", as in its training: texts after
                      Minerva's normalisation
    dapo_strict_box   the same with strict_box_verify, of \\boxed{ANSWER}: the texts unchanged

All graders receive whole texts unchanged.
"""
import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

# Name, repository, commit, and the only file of it that is run.
RLLM = ("rllm", "https://github.com/agentica-project/rllm", "874daa4acb7f451dc2a4b2b6e8ce28f5aa88d1f5", "rllm/rewards/math_utils/utils.py")
VERL = ("verl", "https://github.com/volcengine/verl", "b178a3cd56f58b2d502255daba591e92833930a7", "verl/utils/reward_score/math_dapo.py")


def checkout(repository, commit, path, folder):
    """Fetches a single file of a commit, without history and other files."""
    for command in (
        ["init", "-q"],
        ["remote", "add", "origin", repository],
        ["fetch", "-q", "--depth", "1", "--filter", "blob:none", "origin", commit],
        ["checkout", "-q", "FETCH_HEAD", "--", path],
    ):
        subprocess.run(["git", "-C", folder, *command], check=True)


def load(grader, folder):
    """Loads the grader's module from its file, without the rest of its package."""
    name, repository, commit, path = grader
    if folder is None:
        folder = tempfile.mkdtemp(prefix=name)
        checkout(repository, commit, path, folder)
    spec = importlib.util.spec_from_file_location("reference_" + name, pathlib.Path(folder) / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pairs(text):
    """Yields (group, label, answer) of each line in both orders, without repeats."""
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
    """Returns the verdict; a grader that raises an error rejects the answer."""
    try:
        return bool(grade(*texts))
    except Exception:
        return False


# Labels and whole answers.
TEXTS = [
    ("7", "\\boxed{7}"),
    ("7", "So we get $\\boxed{7}$."),
    ("7", "First \\boxed{6}, no: \\boxed{7}"),
    ("6", "First \\boxed{6}, no: \\boxed{7}"),
    ("7", "\\boxed{7} and then \\boxed{8"),
    ("7", "\\boxed{8"),
    ("7", "It is \\fbox{7}."),
    ("7", "\\boxed 7"),
    ("7", "\\boxed {7}"),
    ("7", "\\boxed{}"),
    ("7", "\\boxed{\\boxed{7}}"),
    ("\\frac{1}{2}", "\\boxed{\\frac{1}{2}}"),
    ("\\frac{1}{2}", "$$\\boxed{\\dfrac{1}{2}}$$"),
    ("\\frac{1}{2}", "The answer is $\\frac{1}{2}$."),
    ("\\frac{1}{2}", "Answer: $\\frac{1}{2}$"),
    ("\\frac{1}{2}", "Answer: 1/2"),
    ("7", "The answer is 7."),
    ("7", "The answer is 7"),
    ("7", "The final answer is: 7"),
    ("7", "**Answer:** 7"),
    ("7", "Answer: **7**"),
    ("7", "answer: 7"),
    ("7", "Answer: 7\nI am sure."),
    ("7", "Answer: 6\nAnswer: 7"),
    ("7", "Answer: 7 apples"),
    ("7", "Answer:7"),
    ("7", "Answer: $7$"),
    ("7", "Answer: \\boxed{7}"),
    ("7", "Answer: x=7"),
    ("7", "7"),
    ("7", "It is 3 + 4 = 7"),
    ("7", "It is 7, which is more than 6"),
    ("6", "It is 7, which is more than 6"),
    ("7", "There are 7 of them."),
    ("-7", "There are -7 of them."),
    ("7", "10-7"),
    ("1234", "It costs $1,234."),
    ("0.5", "It is .5"),
    ("0.5", "It is 1/2"),
    ("7", "$7$"),
    ("7", "$x = 7$"),
    ("7", "<answer>7</answer>"),
    ("7", "<think>8</think><answer>7</answer>"),
    ("7", "<think>\\boxed{8}</think> It is \\boxed{7}."),
    ("8", "<think>\\boxed{8}</think> It is seven."),
    ("7", "#### 7"),
    ("7", "I do not know."),
    ("7", ""),
    ("x+1", "The answer is $1+x$."),
    ("(1,2)", "The point is $(1,2)$."),
    ("\\{1,2\\}", "The answer is $\\{2,1\\}$"),
    ("B", "The answer is B."),
    ("B", "\\boxed{B}"),
    ("B", "\\boxed{\\text{(B)}}"),
    ("\\boxed{7}", "\\boxed{7}"),
    ("7", "\\boxed{7}" + " and so on" * 40),
    ("7", "\\boxed{8} \\boxed{7} " + "x" * 120),
    ("3/4", "The answer is: \n\n$$\\frac{3}{4}$$"),
    ("4", "The answer is: \n\n$$\\frac{3}{4}$$"),
    ("\\frac{1}{2}", "**Answer:**\n$\\frac{1}{2}$"),
    ("2", "**Answer:**\n$\\frac{1}{2}$"),
    ("\\frac{1}{2}", "**Answer**: $\\frac{1}{2}$"),
    ("\\frac{3}{4}", "Answer:\n$$\n\\frac{3}{4}\n$$"),
    ("5", "The answer is as follows:\n\n$$x=5$$"),
    ("5", "The answer is therefore $5$."),
    ("5", "Answer: 5\n\nThis answer is verified."),
    ("5", "The answer is 5. I checked: this answer is right."),
    ("7", "The answer is a bit subtle. We get $7$."),
    ("\\sqrt{2}", "Thus $x=\\sqrt{2}$."),
    ("2", "Thus $x=\\sqrt{2}$."),
    ("1024", "$2^{10}$"),
    ("10", "$2^{10}$"),
    ("\\frac{3}{4}", "It is \\( \\frac{3}{4} \\)."),
    ("4", "It is \\( \\frac{3}{4} \\)."),
    ("\\frac{3}{4}", "\\[ \\frac{3}{4} \\]"),
    ("4", "\\[ \\frac{3}{4} \\]"),
    ("7", "\\[ \\begin{aligned} x &= 3+4 \\\\ &= 7 \\end{aligned} \\]"),
    ("\\pi", "Hence $\\pi$ in both of the 2 cases, that is $\\pi$."),
    ("5", "We know $x=3$ and so 5 in total."),
    ("3", "We know $x=3$ and so 5 in total."),
    ("n", "There are 5 of them; hence $n$."),
    ("2", "It costs $5 and then $7, so the difference is 2."),
    ("\\frac{3}{4}", "So it is \\frac{3}{4}."),
    ("4", "So it is \\frac{3}{4}."),
    ("1024", "So it is 2^{10}."),
    ("10", "So it is 2^{10}."),
    ("\\sqrt{2}", "so x = sqrt(2)"),
    ("2", "so x = sqrt(2)"),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rllm", help="a checkout of %s at %s" % RLLM[1:3])
    parser.add_argument("--verl", help="a checkout of %s at %s" % VERL[1:3])
    args = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    from math_verify import parse, verify

    deepscaler, dapo = load(RLLM, args.rllm), load(VERL, args.verl)

    def by_math_verify(label, text):
        gold, found = (parse(one, parsing_timeout=None) for one in (label, text))
        return verify(gold, found, timeout_seconds=None)

    def by_deepscaler(grade):
        return lambda label, text: deepscaler.extract_answer(text) is not None and grade(deepscaler.extract_answer(text), label)

    boxed = "\\boxed{%s}".__mod__
    # Each grader with the form of the label and of the answer that it receives.
    graders = {
        "math_verify": (by_math_verify, boxed, boxed),
        "deepscaler_mathd": (by_deepscaler(deepscaler.grade_answer_mathd), str, boxed),
        "deepscaler_sympy": (by_deepscaler(deepscaler.grade_answer_sympy), str, boxed),
        "dapo_minerva": (lambda label, text: dapo.compute_score(text, label)["acc"], str, "Answer: {}".format),
        "dapo_strict_box": (lambda label, text: dapo.compute_score(text, label, True)["acc"], str, boxed),
    }
    here = pathlib.Path(__file__).parent
    with open(here / "cases.jsonl", "w", encoding="utf-8") as out:
        for group, label, answer in pairs((here / "pairs.txt").read_text(encoding="utf-8")):
            said = {name: safely(grade, gold(label), found(answer)) for name, (grade, gold, found) in graders.items()}
            print(json.dumps({"group": group, "label": label, "answer": answer, **said}, ensure_ascii=False), file=out)
    with open(here / "texts.jsonl", "w", encoding="utf-8") as out:
        for label, text in TEXTS:
            # math_verify reads only a boxed label as a formula; the others need no box.
            marked = label if "\\boxed" in label else boxed(label)
            said = {name: safely(grade, marked if name == "math_verify" else label, text) for name, (grade, _, _) in graders.items()}
            print(json.dumps({"group": "text", "label": label, "answer": text, **said}, ensure_ascii=False), file=out)


if __name__ == "__main__":
    main()
