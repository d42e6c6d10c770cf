"""Classes of compound answers: times, intervals, sets, lists, tuples, points, matrices."""
import math
from fractions import Fraction

from frames import prose, tex
from item import Item, of


@of("math", "times", 280)
def times(rng):
    hour, minute, half = rng.randint(1, 12), rng.randint(0, 59), rng.choice("ap")

    def forms(hour, minute, half):
        clock = f"{hour}:{minute:02}"
        found = tex(f"{clock} \\text{{ {half}.m.}}", f"{clock}\\text{{ {half.upper()}M}}", f"{clock}\\ \\text{{{half}.m.}}", f"{clock} \\mathrm{{~{half.upper()}M}}")
        return found + prose(f"{clock} {half.upper()}M", f"{clock} {half}.m.", f"{clock} {half}m")

    wrong = forms(hour, minute, "p" if half == "a" else "a") + forms(hour % 12 + 1, minute, half) + forms(hour, (minute + rng.choice((1, 10, 30))) % 60, half)
    return Item([f"{hour}:{minute:02}\\text{{ {half}.m.}}", f"{hour}:{minute:02} \\text{{ {half.upper()}M}}"], forms(hour, minute, half), wrong)


INFINITE = (-math.inf, math.inf)


def end(value):
    """Returns the end of an interval as LaTeX."""
    if value in INFINITE:
        return "\\infty" if value > 0 else "-\\infty"
    return str(value) if isinstance(value, int) or value.denominator == 1 else f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def interval(low, high, left, right):
    return f"{left}{end(low)},{end(high)}{right}"


def interval_forms(low, high, left, right, letter="x"):
    """Returns the interval in brackets, European brackets, as inequality, and as a set."""
    a, b = end(low), end(high)
    found = tex(f"{left}{a},{b}{right}", f"{left}{a}, {b}{right}", f"\\left{left}{a},{b}\\right{right}", f"{letter} \\in {left}{a}, {b}{right}")
    below, above = ("\\le" if left == "[" else "<"), ("\\le" if right == "]" else "<")
    if low == -math.inf:
        sign = "\\ge" if right == "]" else ">"
        condition, turned = f"{letter} {above} {b}", f"{b} {sign} {letter}"
    elif high == math.inf:
        sign = "\\ge" if left == "[" else ">"
        condition, turned = f"{letter} {sign} {a}", f"{a} {below} {letter}"
    else:
        condition = f"{a} {below} {letter} {above} {b}"
        turned = condition.replace("\\le", "\\leq")
    european = f"{']' if left == '(' else '['}{a}, {b}{'[' if right == ')' else ']'}"
    return found + tex(condition, turned, european, f"\\{{{letter} \\mid {condition}\\}}", f"\\{{{letter} : {condition}\\}}")


def bounds(rng):
    """Returns two ends, at most one of them infinite, and the brackets; never a pair of round ones."""
    while True:
        low, high = sorted(rng.sample([Fraction(n, rng.choice((1, 1, 1, 2, 3))) for n in range(-20, 21)], 2))
        if low == high:
            continue
        low, high = rng.choice(((low, high), (low, high), (-math.inf, high), (low, math.inf)))
        left = "(" if low == -math.inf else rng.choice("([")
        right = ")" if high == math.inf else rng.choice(")]")
        # (1,2) could be a point.
        if (left, right) != ("(", ")") or low in INFINITE or high in INFINITE:
            return low, high, left, right


def swapped(bracket):
    return {"(": "[", "[": "(", ")": "]", "]": ")"}[bracket]


def near_intervals(rng, low, high, left, right):
    """Returns the ends and brackets of intervals with one bracket, end or sign changed."""
    found = []
    if low != -math.inf:
        found += [(low, high, swapped(left), right), (low - rng.randint(1, 3), high, left, right)]
    if high != math.inf:
        found += [(low, high, left, swapped(right)), (low, high + rng.randint(1, 3), left, right)]
    if low == -math.inf:
        found.append((high, math.inf, "(" if right == ")" else "[", ")"))
    if high == math.inf:
        found.append((-math.inf, low, "(", ")" if left == "(" else "]"))
    return found


@of("math", "intervals", 640)
def intervals(rng):
    given = bounds(rng)
    wrong = [form for near in near_intervals(rng, *given) for form in interval_forms(*near)]
    return Item([interval(*given)], interval_forms(*given), wrong)


@of("math", "unions", 360)
def unions(rng):
    a, b = sorted(rng.sample(range(-15, 16), 2))
    if rng.random() < 0.3:
        c, d = sorted(rng.sample(range(b + 1, b + 12), 2))
        one, two = (a, b, rng.choice("(["), rng.choice(")]")), (c, d, rng.choice("(["), rng.choice(")]"))
    else:
        one, two = (-math.inf, a, "(", rng.choice(")]")), (b, math.inf, rng.choice("(["), ")")

    def forms(one, two):
        first, second = interval(*one), interval(*two)
        found = tex(f"{first}\\cup{second}", f"{first} \\cup {second}", f"{second} \\cup {first}", f"x \\in {first} \\cup {second}")
        found += tex(f"\\left{one[2]}{end(one[0])},{end(one[1])}\\right{one[3]}\\cup\\left{two[2]}{end(two[0])},{end(two[1])}\\right{two[3]}")
        if one[0] == -math.inf and two[1] == math.inf:
            lower, upper = "\\le" if one[3] == "]" else "<", "\\ge" if two[2] == "[" else ">"
            found += tex(f"x {lower} {end(one[1])} \\text{{ or }} x {upper} {end(two[0])}")
        return found

    wrong = [form for near in near_intervals(rng, *one)[:-1] if near[1] == one[1] for form in forms(near, two)]
    wrong += forms((one[0], one[1], one[2], swapped(one[3])), two) + forms(one, (two[0], two[1], swapped(two[2]), two[3]))
    wrong += forms((one[0], one[1] - 1 if one[1] - 1 > one[0] else one[1], one[2], one[3]), (two[0] + 1, two[1], two[2], two[3])) if two[0] + 1 < two[1] else []
    wrong += tex(interval(*one), interval(*two), f"{interval(*one)} \\cap {interval(*two)}")
    return Item([f"{interval(*one)} \\cup {interval(*two)}"], forms(one, two), wrong)


def members(rng, count):
    """Returns different values in two spellings each."""
    values = rng.sample(range(-20, 40), count)
    found = [(Fraction(n), str(n), str(n)) for n in values]
    if rng.random() < 0.4:
        value = Fraction(2 * rng.randint(-9, 9) + 1, 2)
        sign = "-" if value < 0 else ""
        found[0] = (value, f"{sign}\\frac{{{abs(value.numerator)}}}{{2}}", f"{float(value):g}")
    return found


@of("math", "sets")
def sets(rng):
    found = members(rng, rng.randint(2, 5))

    def forms(found):
        order = rng.sample(found, len(found))
        texts, other = [one[1] for one in order], [one[2] for one in order]
        return tex("\\{" + ",".join(texts) + "\\}", "\\left\\{" + ", ".join(texts) + "\\right\\}", "\\{ " + ", ".join(other) + " \\}", "\\lbrace " + ", ".join(texts) + "\\rbrace")

    return Item(["\\{" + ",".join(one[1] for one in found) + "\\}"], forms(found) + forms(found), near_lists(rng, found, forms))


def near_lists(rng, found, forms):
    """Returns forms with a value more, less, changed, or of the other sign."""
    values = {one[0] for one in found}
    fresh = next(n for n in rng.sample(range(41, 99), 9) if n not in values)
    change = lambda n: [(Fraction(n), str(n), str(n))] + found[1:]
    wrong = forms(found[:-1]) + forms(found + [(Fraction(fresh), str(fresh), str(fresh))]) + forms(change(fresh))
    whole = found[-1][0]
    if whole and -whole not in values:
        wrong += forms(found[:-1] + [(-whole, str(-whole), str(-whole))])
    return wrong


@of("math", "lists")
def lists(rng):
    found = members(rng, rng.randint(2, 4))

    def forms(found):
        texts, other = zip(*[one[1:] for one in rng.sample(found, len(found))])
        forms = tex(", ".join(texts), ",".join(other))
        if len(found) > 1:
            forms += tex(", ".join(texts[:-1]) + " \\text{ and } " + texts[-1], "x = " + ", ".join(other))
            forms += tex(" \\text{ or } ".join(f"x = {one}" for one in texts))
        if len(found) == 2:
            forms += prose(f"{other[0]} and {other[1]}", f"x = {other[0]} or x = {other[1]}")
        elif len(found) > 2:
            forms += prose(", ".join(other[:-1]) + ", and " + other[-1])
        return forms

    return Item([",".join(one[1] for one in found), ", ".join(one[1] for one in found)], forms(found), near_lists(rng, found, forms), bare=False)


@of("math", "plus or minus", 200)
def plus_minus(rng):
    a, b = rng.choice(((0, rng.randint(1, 60)), (rng.randint(-20, 20), rng.randint(1, 30))))

    def forms(a, b):
        return tex(f"{a or ''}\\pm {b}", f"{a - b}, {a + b}", f"x = {a + b}, {a - b}", f"\\{{{a - b}, {a + b}\\}}") + prose(f"{a + b} and {a - b}")

    wrong = forms(a, b + 1) + tex(str(a + b), str(a - b)) + (forms(-a, b) if a else []) + forms(a + 1, b)
    return Item([f"{a or ''}\\pm {b}", f"{a - b},{a + b}"], forms(a, b), wrong, bare=False)


def ordered(rng, found, name=None):
    """Returns the values as a tuple in that order."""
    texts, other = [one[1] for one in found], [one[2] for one in found]
    forms = tex("(" + ",".join(texts) + ")", "\\left(" + ", ".join(texts) + "\\right)", "(" + ", ".join(other) + ")", "( " + " , ".join(other) + " )")
    return forms + (tex(f"{name} = (" + ", ".join(texts) + ")") if name else []) + (prose("(" + ", ".join(other) + ")") if "\\" not in "".join(other) else [])


@of("math", "tuples", 640)
def tuples(rng):
    count = rng.choice((2, 2, 2, 3, 3, 4))
    found = members(rng, count)
    name = {2: "(x,y)", 3: "(x,y,z)", 4: "(a,b,c,d)"}[count]
    wrong = []
    for _ in range(2):
        order = rng.sample(found, count)
        wrong += ordered(rng, order if order != found else found[::-1], name)
    at = rng.randrange(count)
    for value in (found[at][0] + 1, -found[at][0] if found[at][0] else Fraction(5)):
        spelled = (value, end(value), f"{float(value):g}")
        wrong += ordered(rng, found[:at] + [spelled] + found[at + 1 :], name)
    wrong += ordered(rng, found[:-1]) if count > 2 else []
    return Item(["(" + ",".join(one[1] for one in found) + ")", "(" + ", ".join(one[1] for one in found) + ")"], ordered(rng, found, name), wrong)


@of("math", "several points", 260)
def points(rng):
    found = [tuple(rng.sample(range(-12, 13), 2)) for _ in range(2)]
    if found[0] == found[1] or found[0] == found[1][::-1]:
        found = [(1, 2), (3, rng.randint(4, 99))]

    def forms(points):
        texts = [f"({x},{y})" for x, y in rng.sample(points, len(points))]
        return tex(", ".join(texts), ",".join(texts), " \\text{ and } ".join(texts), "\\{" + ", ".join(texts) + "\\}") + prose(" and ".join(texts))

    (a, b), other = found
    wrong = forms([(b, a), other]) + forms([(a, b + 1), other]) + forms([(a, b)]) + forms([(a, other[1]), (other[0], b)] if a != other[0] and b != other[1] else [(a + 1, b), other])
    return Item([", ".join(f"({x},{y})" for x, y in found)], forms(found), wrong, bare=False)


def matrix(rows, kind, cell=str):
    body = " \\\\ ".join(" & ".join(cell(one) for one in row) for row in rows)
    if kind == "array":
        return f"\\left[\\begin{{array}}{{{'c' * len(rows[0])}}} {body} \\end{{array}}\\right]"
    return f"\\begin{{{kind}}} {body} \\end{{{kind}}}"


@of("math", "matrices and vectors")
def matrices(rng):
    height, width = rng.choice(((2, 2), (2, 2), (3, 3), (2, 3), (2, 1), (3, 1), (1, 3)))
    rows = [[Fraction(rng.randint(-9, 9), rng.choice((1, 1, 1, 1, 2, 3))) for _ in range(width)] for _ in range(height)]
    rows[0][0] = Fraction(rng.randint(10, 19))

    def forms(rows):
        spaced = matrix(rows, "pmatrix", end).replace(" \\\\ ", "\\\\").replace(" & ", "&")
        wide = matrix(rows, "pmatrix", end).replace("\\frac", "\\dfrac")
        return tex(matrix(rows, "pmatrix", end), matrix(rows, "bmatrix", end), matrix(rows, "array", end), spaced, wide)

    at, across = rng.randrange(height), rng.randrange(width)
    changed = [list(row) for row in rows]
    changed[at][across] += rng.choice((-1, 1, 2))
    negative = [list(row) for row in rows]
    negative[0][0] = -negative[0][0]
    wrong = forms(changed) + forms(negative)
    # A column compared with a row is left out: some take both for the same vector.
    transposed = [list(column) for column in zip(*rows)] if 1 not in (height, width) else rows
    for near in (transposed, rows[::-1], [row[::-1] for row in rows]):
        wrong += forms(near) if near != rows else []
    return Item([matrix(rows, "pmatrix", end)], forms(rows), wrong)
