#!/usr/bin/env python3
"""Turns lines with questions and answers into tasks for the workflow deep-research.

Their context can be written as a corpus.

    python3 configs/converters/deep_research.py < questions.jsonl > tasks.jsonl
    python3 configs/converters/deep_research.py --corpus corpus/documents.jsonl \\
        < hotpot_train.jsonl > tasks.jsonl

Reads JSON objects, one a line, from stdin. Writes tasks, {"prompt": question, "label": answer}, to
stdout. In a list of answers each answer is right. A line has one of these shapes:

    MrlX DeepResearch, HotpotQA
        {"question": "..", "answer": ".."}
    FlashRAG
        {"id": "..", "question": "..", "golden_answers": [".."]}
    MuSiQue
        {"question": "..", "answer": "..", "answer_aliases": [".."]}
    Search-R1 in verl's layout
        {"prompt": [..], "reward_model": {"ground_truth": {"target": [".."]}}}

--corpus FILE writes the documents of the lines for `tools.search` and `tools.visit` of
`kind = "corpus:FOLDER"`, each {"id", "title", "text"}. It reads HotpotQA's `context` (in the Hub's
form, or pairs of title and sentences), MuSiQue's `paragraphs`, and FlashRAG's corpus, which has
lines of {"id", "contents"} without a question. A repeated document is written once. The file must
not exist.

A repeated question is written once. A line that cannot be used is named on stderr and left out; the
exit code is then 1. For Parquet first run
`pandas.read_parquet(..).to_json(.., orient="records", lines=True)`.
"""
import argparse
import hashlib
import json
import pathlib
import re
import sys

# The text before each question in Search-R1.
BEFORE = re.compile(r"\AAnswer the given question\..*?\bQuestion:\s*", re.S)


def text_of(value):
    """Returns a text that is not empty, or None."""
    return value.strip() if isinstance(value, str) and value.strip() else None


def question_of(line):
    """Returns the question: its own text, else the user's last message in prompt."""
    found = text_of(line.get("question"))
    prompt = line.get("prompt")
    if found is None and isinstance(prompt, list):
        said = [message.get("content") for message in prompt if isinstance(message, dict) and message.get("role") == "user"]
        prompt = said[-1] if said else None
    if found is None and text_of(prompt):
        found = text_of(BEFORE.sub("", prompt.strip()))
    return found


def answers_of(line):
    """Returns the right answers, each once, in their order."""
    judged = line.get("reward_model")
    truth = judged.get("ground_truth") if isinstance(judged, dict) else None
    truth = truth.get("target") if isinstance(truth, dict) else truth
    found = []
    for given in (line.get("answer"), line.get("answer_aliases"), line.get("golden_answers"), truth):
        for answer in given if isinstance(given, list) else [given]:
            if isinstance(answer, (int, float)) and not isinstance(answer, bool) and abs(answer) != float("inf") and answer == answer:
                answer = str(answer)
            if text_of(answer) and text_of(answer) not in found:
                found.append(text_of(answer))
    return found


def task(line):
    """Returns the task of a line; a ValueError names the missing part."""
    question, answers = question_of(line), answers_of(line)
    if question is None:
        raise ValueError("it has no text under question or prompt")
    if not answers:
        raise ValueError("it has no answer under answer, golden_answers or reward_model.ground_truth")
    made = {"prompt": question, "label": answers[0] if len(answers) == 1 else answers}
    name = line.get("id")
    if isinstance(name, (str, int)) and not isinstance(name, bool) and str(name):
        made = {"id": str(name), **made}
    return made


def documents(line):
    """Yields (title, text) of a question's context and of a line of a corpus."""
    context, contents = line.get("context"), text_of(line.get("contents"))
    if isinstance(context, dict):
        context = list(zip(context.get("title", []), context.get("sentences", [])))
    for pair in context if isinstance(context, list) else []:
        if isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[1], list):
            yield str(pair[0]), "".join(str(sentence) for sentence in pair[1])
    for one in line.get("paragraphs") or []:
        yield str(one.get("title", "")), str(one.get("paragraph_text", ""))
    if contents is not None:
        title, _, text = contents.partition("\n")
        yield title.strip().strip('"'), text or title


def digest(*parts):
    """Returns 16 bytes that represent texts, because there may be millions of texts."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Corpus:
    """Documents by title, each text once."""

    def __init__(self, path):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.file = open(path, "x", encoding="utf-8")
        # Digests of names and of texts, and the number of documents of each title.
        self.names, self.texts, self.numbers = set(), set(), {}

    def add(self, title, text):
        title, text = title.strip() or "untitled", text.strip()
        if not text or digest(title, text) in self.texts:
            return
        self.texts.add(digest(title, text))
        # Another text of the same title is another document.
        key = digest(title)
        name, number = title, self.numbers.get(key, 1)
        while digest(name) in self.names:
            number += 1
            name = f"{title} ({number})"
        self.names.add(digest(name))
        if number > 1:
            self.numbers[key] = number
        print(json.dumps({"id": name, "title": title, "text": text}, ensure_ascii=False), file=self.file)


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
    parser = argparse.ArgumentParser(description="questions and answers to tasks for dyad, from stdin to stdout")
    parser.add_argument("--corpus", metavar="FILE", help="write the documents of the lines there, for kind = \"corpus:FOLDER\"")
    path = parser.parse_args().corpus
    corpus, seen, bad = Corpus(path) if path else None, set(), 0
    for number, line in lines(sys.stdin.buffer):
        try:
            line = read(line)
            written(line)  # its documents may also have a lone surrogate
            of_corpus = "contents" in line and "question" not in line and "prompt" not in line
            made = None if of_corpus else task(line)
            # All documents of a line or none of them.
            context = list(documents(line)) if corpus else []
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            bad += 1
            print(f"line {number}: {error}", file=sys.stderr)
            continue
        for title, document in context:
            corpus.add(title, document)
        if made is not None and digest(made["prompt"]) not in seen:
            seen.add(digest(made["prompt"]))
            sys.stdout.buffer.write(written(made))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
