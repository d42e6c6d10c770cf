"""The page of the bench, and lists of errors for reading."""
import collections

import references

# The graders with a column for each class; the others have totals only.
COLUMNS = ("dyad", "math_verify", "DeepScaleR", "verl DAPO")
GIVEN = {
    "dyad": "everything",
    "math_verify": "everything",
    "DeepScaleR": "boxes; best of two",
    "verl DAPO": "boxes, `Answer:`",
    "verl MATH": "boxes",
    "verl PRIME": "every tenth",
    "verl GSM8K strict": "`####`",
    "verl GSM8K flexible": "everything",
    "lm-eval GSM8K strict": "`####`",
    "lm-eval GSM8K flexible": "everything",
    "lm-eval Minerva": "its sentence",
}
# Classes that share a row of the page.
ROWS = {
    "large numbers": "whole numbers",
    "repeating decimals": "decimals",
    "sums with roots": "roots",
    "scientific notation": "powers",
    "unions": "intervals",
    "plus or minus": "lists",
    "several points": "tuples",
    "matrices and vectors": "matrices",
    "named values": "equations",
    "numbers in words": "number words",
    "ordinals": "number words",
    "expressions in variables": "expressions",
    "polynomials": "expressions",
    "names of points": "point names",
    "letters of options": "option letters",
    "choices after formula boxes": "choices, boxes",
    "gsm8k texts": "gsm8k",
    "whole-number answers": "integer",
    "computations in a box": "computations",
    "words of scale": "million, dozen",
    "forms of labels": "label forms",
    "hostile texts": "hostile",
    "further whole numbers": "whole numbers",
    "further fractions": "fractions",
    "further roots": "roots",
    "further functions of numbers": "functions",
    "further complex numbers": "complex",
    "further intervals": "intervals",
    "further lists and tuples": "tuples",
    "further expressions": "expressions",
    "further dressed numbers": "units",
    "further choices": "choices",
    "further gsm8k texts": "gsm8k",
}


def row_of(row):
    """Returns the page's row for the class of a pair."""
    return ROWS.get(row["class"], row["class"])


def counts(rows, found):
    """Returns (grader, row of the page) -> [pairs, false positives, false negatives, problems]."""
    table = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name, i, verdict, problem, _ in found:
        for key in ((name, row_of(rows[i])), (name, None)):
            entry = table[key]
            entry[0] += 1
            entry[1] += verdict and not rows[i]["want"]
            entry[2] += not verdict and rows[i]["want"]
            # Other failures are the reference's own way to say no.
            entry[3] += problem in ("timeout", "died", "refused")
    return table


def cell(entry):
    pairs, positive, negative, problems = entry
    return f"{positive}+{negative}/{pairs}" + (f"!{problems}" if problems else "") if pairs else ""


def wrong_classes(table, grader):
    """Returns the number of rows of the page in which a grader errs, of those that it reads."""
    read = [entry for (name, row), entry in table.items() if name == grader and row is not None and entry[0]]
    return f"{sum(any(entry[1:3]) for entry in read)}/{len(read)}"


def short(text, most=60):
    """Returns the end of a text on one line, fit for a table's cell."""
    text = " ".join(text.replace("|", "\\|").replace("`", "'").split())
    return text if len(text) <= most else "..." + text[-most:]


def quantile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] * 1000


def typical(rows, found, name):
    """Returns one short false positive and one short false negative, each of the class with most of them."""
    shown = []
    for want in (False, True):
        wrong = [rows[i] for who, i, verdict, *_ in found if who == name and rows[i]["want"] == want and verdict != want]
        classes = collections.Counter(row["class"] for row in wrong)
        if classes:
            most = classes.most_common(1)[0][0]
            row = min((row for row in wrong if row["class"] == most), key=lambda row: len(row["text"]) + len(str(row["label"])))
            # An answer without the reasoning before it.
            shown.append(f"`{short(row['text'].splitlines()[-1], 40)}` for `{short(str(row['label']).splitlines()[-1], 25)}`")
        else:
            shown.append("")
    return shown


def page(rows, found, versions, missing, build):
    """Returns the page with totals, classes and examples; `build` names the build of dyad."""
    table = counts(rows, found)
    names = [name for name in GIVEN if (name, None) in table]
    columns = [name for name in COLUMNS if name in names]
    seconds = collections.defaultdict(list)
    for name, _, _, _, one in found:
        seconds[name].append(one)
    lines = [
        "# Agreement of graders",
        "",
        f"`make agreement`: {len(rows)} pairs of [known verdict](pairs.py), graded by dyad and by [others](references.py). Only dyad was tuned on them.",
        "",
        *([missing, ""] if missing else []),
        "Cells: false positives + false negatives / pairs; `!`: timeouts, crashes, refused labels.",
        f"Times: dyad's by the clock ({build}), the others' in processor time.",
        "",
        "| grader | given | errors | classes with errors | ms: p50, p99 |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        times = ", ".join(f"{quantile(seconds[name], share):.2f}" for share in (0.5, 0.99))
        lines.append(f"| {name} | {GIVEN[name]} | {cell(table[name, None])} | {wrong_classes(table, name)} | {times} |")
    lines += ["", "| class | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name in dict.fromkeys(map(row_of, rows)):
        lines.append(f"| {name} | " + " | ".join(cell(table[column, name]) if (column, name) in table else "" for column in columns) + " |")
    lines += ["", "| typical | accepts | rejects |", "|---|---|---|"]
    for name in columns:
        if any(shown := typical(rows, found, name)):
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
    pins = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n".join(lines + ["", f"{pins}, rllm {references.RLLM[1][:7]}."]) + "\n"


def errors(rows, found, reasons):
    """Returns every grader's errors by class, five of each kind; dyad's with its reasons."""
    by = collections.defaultdict(list)
    for name, i, verdict, problem, _ in found:
        if verdict != rows[i]["want"]:
            by[name, rows[i]["class"], rows[i]["want"]].append((i, problem))
    lines = []
    for (name, kind, want), places in by.items():
        lines += [f"## {name}: {kind}: {len(places)} wrongly {'rejected' if want else 'accepted'}", ""]
        # The shortest texts show the reason best.
        for i, problem in sorted(places, key=lambda one: len(rows[one[0]]["text"]))[: 5 if name != "dyad" else 8]:
            row = rows[i]
            line = f"- `{row['kind']}` label {row['label']!r} text {row['text'][-200:]!r}"
            if problem:
                line += f" ({problem})"
            if name == "dyad":
                line += f" -> read {reasons[i].get('answer')!r} and {reasons[i].get('label')!r}: {reasons[i].get('why')}"
            lines.append(line)
        lines.append("")
    return "\n".join(lines)


def unanimous(rows, found):
    """Returns the pairs on which every reference that read them differs from the truth."""
    by = collections.defaultdict(list)
    for name, i, verdict, *_ in found:
        if name != "dyad":
            by[i].append((name, verdict))
    lines = []
    for i, verdicts in by.items():
        if all(verdict != rows[i]["want"] for _, verdict in verdicts):
            lines.append(f"- {rows[i]['class']}: want {int(rows[i]['want'])}, label {rows[i]['label']!r}, text {rows[i]['text'][-120:]!r}: {', '.join(name for name, _ in verdicts)}")
    return "\n".join(lines) + "\n"
