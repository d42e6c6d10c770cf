"""The reference graders, each with the kinds and texts that it reads.

DeepScaleR is a single file of a repository, fetched with git at a commit. The others are packages. No
part of them belongs to this project.

| grader | label | text |
|---|---|---|
| math_verify | between dollar signs; if nothing is found, in `\\boxed{}` | unchanged; letters by its string extraction |
| DeepScaleR | unchanged | with a box; right if grade_answer_mathd or grade_answer_sympy accepts |
| verl DAPO | unchanged | with `Answer:` or a box in the last 300 characters |
| verl MATH | unchanged | with a box |
| verl PRIME | unchanged | unchanged |
| verl GSM8K | number without commas | flexible: unchanged; strict: with `#### ` |
| lm-eval GSM8K | worked solution or number | the same |
| lm-eval Minerva | normalised | with `Final Answer: The final answer is` |

Every numeric label of a worked solution is cut out for the graders that take a number.
"""
import contextlib
import functools
import importlib
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import types

RLLM = ("https://github.com/agentica-project/rllm", "874daa4acb7f451dc2a4b2b6e8ce28f5aa88d1f5", "rllm/rewards/math_utils/utils.py")
SITE = pathlib.Path(sysconfig.get_paths()["purelib"])


def checkout(repository, commit, path, folder):
    """Fetches a single file of a commit, without history and other files."""
    for command in (
        ["init", "-q"],
        ["remote", "add", "origin", repository],
        ["fetch", "-q", "--depth", "1", "--filter", "blob:none", "origin", commit],
        ["checkout", "-q", "FETCH_HEAD", "--", path],
    ):
        subprocess.run(["git", "-C", folder, *command], check=True)


def rllm_folder(given):
    """Returns the folder with DeepScaleR's file: the given one, or a new one fetched with git."""
    if given:
        return given
    folder = tempfile.mkdtemp(prefix="rllm")
    try:
        checkout(*RLLM, folder)
    except subprocess.CalledProcessError:
        shutil.rmtree(folder)
        sys.exit(
            "DeepScaleR's grader could not be fetched from %s: pass a checkout of commit %s with"
            " ARGS='--rllm FOLDER'" % (RLLM[0], RLLM[1][:7])
        )
    return folder


def from_file(name, path):
    """Loads a module from its file, without the rest of its package."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def verl(name):
    """Loads a grader of verl without the packages that only its training needs."""
    if "verl" not in sys.modules:
        for package in ("verl", "verl.utils"):
            module = types.ModuleType(package)
            module.__path__ = [str(SITE / package.replace(".", "/"))]
            sys.modules[package] = module
        # The worker has a time limit of its own.
        functional = types.ModuleType("verl.utils.py_functional")
        functional.timeout_limit = lambda seconds: NoLimit()
        imports = types.ModuleType("verl.utils.import_utils")
        imports.deprecated = lambda *names: lambda function: function
        sys.modules[functional.__name__], sys.modules[imports.__name__] = functional, imports
    return importlib.import_module(f"verl.utils.reward_score.{name}")


class NoLimit(contextlib.ContextDecorator):
    """Stands for a time limit, as a decorator and as a context."""

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        return False


def number(label):
    """Returns the number of a worked solution or of a bare label, without commas."""
    return str(label).split("#### ")[-1].replace(",", "").strip()


def plain(row):
    """Returns the label that a grader of mathematics receives."""
    return str(row["label"]) if row["kind"] == "math" else number(row["label"])


LETTERS = tuple("ABCDEFGHIJ")


def by_math_verify(row):
    from math_verify import StringExtractionConfig, parse, verify

    read = lambda *given: parse(*given, parsing_timeout=None)
    if row["kind"] == "choice":
        # An announced letter, else a box, else any letter that stands alone.
        announced, alone = ([StringExtractionConfig(strings=LETTERS, try_extract_without_anchor=one)] for one in (False, True))
        found = read(row["text"], announced) or "boxed" in row["text"] and read(row["text"]) or read(row["text"], alone)
        return any(verify(gold, found, timeout_seconds=None) for gold in (read(row["label"], alone), read(f"${row['label']}$")))
    label = plain(row)
    marked = label if "boxed" in label or "$" in label.replace("\\$", "") else f"${label}$"
    gold = read(marked) or read(f"\\boxed{{{label}}}")
    return verify(gold, read(row["text"]), timeout_seconds=None)


def by_deepscaler(folder):
    module = from_file("reference_rllm", pathlib.Path(folder) / RLLM[2])

    def grade(row):
        found = module.extract_answer(row["text"])
        return found is not None and (module.grade_answer_mathd(found, plain(row)) or module.grade_answer_sympy(found, plain(row)))

    return grade


STRICT = re.compile("#### (\\-?[0-9\\.\\,]+)")
FLEXIBLE = re.compile("(-?[$0-9.,]{2,})|(-?[0-9]+)")


def by_lm_eval(pattern, last):
    """Grades by a pattern of lm-eval's gsm8k.yaml, then compares texts without its ignored parts."""

    def ignored(text):
        for one in (",", "\\$", "(?s).*#### ", "\\.$"):
            text = re.sub(one, "", text)
        return text.lower()

    def grade(row):
        found = [next(filter(None, one)) if isinstance(one, tuple) else one for one in pattern.findall(row["text"])]
        return bool(found) and ignored(found[-1 if last else 0].strip()) == ignored(str(row["label"]))

    return grade


def by_minerva():
    module = from_file("reference_minerva", SITE / "lm_eval/tasks/minerva_math/utils.py")

    def grade(row):
        found = module.normalize_final_answer(module.get_unnormalized_answer(row["text"]))
        return module.is_equiv(found, module.normalize_final_answer(plain(row)))

    return grade


def reads(grader, name, row):
    """Returns true if the grader is meant for the row: its kind, its form of text, its form of label."""
    kinds, form, _ = grader
    if row["kind"] not in kinds or not form(row["text"]):
        return False
    # Labels with something around the answer are for graders that look for it.
    return row["class"] != "forms of labels" or name == "math_verify" and ("$" in row["label"] or "boxed" in row["label"])


def graders(folder):
    """Returns name -> (kinds, whether it reads the text, grade)."""
    import math_verify  # noqa: F401  (before the workers part, so that each starts fast)

    for name in ("math_dapo", "math_reward", "prime_math", "gsm8k"):
        verl(name)
    numbers, all_kinds = ("math", "gsm8k", "integer"), ("math", "gsm8k", "integer", "choice")
    boxed = lambda text: "\\boxed" in text
    anything = lambda text: True
    announced = lambda text: "\\boxed{" in text[-300:] or re.search(r"(?i)answer\s*:", text[-300:])
    strict = lambda text: "#### " in text
    final = lambda text: "Final Answer: The final answer is" in text
    return {
        "math_verify": (all_kinds, anything, by_math_verify),
        "DeepScaleR": (numbers, boxed, by_deepscaler(folder)),
        "verl DAPO": (numbers, announced, lambda row: verl("math_dapo").compute_score(row["text"], plain(row))["acc"]),
        "verl MATH": (numbers, boxed, lambda row: verl("math_reward").compute_score(row["text"], plain(row)) > 0),
        "verl PRIME": (numbers, anything, lambda row: verl("prime_math").compute_score(row["text"], plain(row))[0]),
        "verl GSM8K strict": (("gsm8k",), strict, lambda row: verl("gsm8k").compute_score(row["text"], number(row["label"]), "strict") > 0),
        "verl GSM8K flexible": (("gsm8k",), anything, lambda row: verl("gsm8k").compute_score(row["text"], number(row["label"]), "flexible") > 0),
        "lm-eval GSM8K strict": (("gsm8k",), strict, by_lm_eval(STRICT, False)),
        "lm-eval GSM8K flexible": (("gsm8k",), anything, by_lm_eval(FLEXIBLE, True)),
        "lm-eval Minerva": (numbers, final, by_minerva()),
    }
