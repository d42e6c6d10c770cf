"""Classes of equations, polynomials, expressions in variables, bases and ratios."""
import math
from fractions import Fraction

from frames import prose, tex
from item import Item, of, signed, term


def monomials(parts):
    """Returns a sum of (factor, symbol); a symbol of nothing is a number."""
    text = ""
    for factor, symbol in parts:
        if factor:
            one = str(factor) if not symbol else term(factor, symbol)
            text += ("+" if text and factor > 0 else "") + one
    return text or "0"


@of("math", "equations")
def equations(rng):
    m, b, k = rng.choice([n for n in range(-9, 10) if n not in (0, 1, -1)]), rng.choice([n for n in range(-20, 21) if n]), rng.randint(2, 4)

    def line(m, b):
        right = monomials([(m, "x"), (b, "")])
        return tex(
            f"y={right}",
            f"y = {monomials([(b, ''), (m, 'x')])}",
            f"{right} = y",
            f"{monomials([(m, 'x'), (-1, 'y'), (b, '')])} = 0",
            f"{monomials([(-m, 'x'), (1, 'y')])} = {b}",
            f"{k}y = {monomials([(k * m, 'x'), (k * b, '')])}",
            f"y {signed(-b)} = {m}x",
        )

    def circle(p, q, r):
        square = lambda letter, at: f"({letter}{signed(-at)})^2" if at else f"{letter}^2"
        constant = p * p + q * q - r * r
        return tex(
            f"{square('x', p)} + {square('y', q)} = {r * r}",
            f"{square('y', q)}+{square('x', p)}={r * r}",
            f"{r * r} = {square('x', p)}+{square('y', q)}",
            monomials([(1, "x^2"), (1, "y^2"), (-2 * p, "x"), (-2 * q, "y"), (constant, "")]) + " = 0",
        )

    if rng.random() < 0.35:
        p, q, r = rng.sample([n for n in range(-9, 10) if n], 2) + [rng.randint(2, 9)]
        return Item([circle(p, q, r)[0].tex], circle(p, q, r), circle(-p, q, r) + circle(p, q, r + 1) + circle(q, p, r) + circle(p, q + 1 or 2, r))
    wrong = line(-m, b) + line(m, -b) + line(m, b + 1 or 2) + (line(b, m) if b not in (m, 1, -1) else [])
    return Item([line(m, b)[0].tex], line(m, b), wrong)


@of("math", "named values", 280)
def named(rng):
    letter, n = rng.choice("xnkmabtP"), rng.randint(-99, 999)
    other = n + rng.choice((1, -1, 10)) if rng.random() < 0.6 or n == 0 else -n
    forms = lambda n: tex(f"{letter}={n}", f"{letter} = {n}", str(n)) + prose(f"{letter} = {n}")
    return Item([str(n), f"{letter}={n}"], forms(n), forms(other))


@of("math", "polynomials", 640)
def polynomials(rng):
    a, b = rng.sample([n for n in range(-9, 10) if n], 2)
    k = rng.choice((1, 1, 1, 2, 3, -1))
    letter = rng.choice("xxnt")

    def forms(k, a, b):
        parts = [(k, f"{letter}^2"), (k * (a + b), letter), (k * a * b, "")]
        times = {1: "", -1: "-"}.get(k, str(k))
        one, two = f"({letter}{signed(a)})", f"({letter}{signed(b)})"
        found = tex(monomials(parts), monomials(parts[::-1]), f"{times}{one}{two}", f"{times}{two}{one}", f"{times}{one}\\cdot{two}")
        if k in (1, 2, 3):
            found += tex(f"{times}\\left({letter}{signed(a)}\\right)\\left({letter}{signed(b)}\\right)", f"{letter}({monomials([(k, letter), (k * (a + b), '')])}){signed(k * a * b)}")
        return found

    wrong = forms(k, a, -b) + forms(k, a + 1 or 10, b) + forms(-k, a, b) + (forms(k, -a, -b) if a + b else [])
    wrong += tex(monomials([(k, f"{letter}^3"), (k * (a + b), letter), (k * a * b, "")]), monomials([(k, f"{letter}^2"), (k * a * b, letter), (k * a * b, "")]) if a * b != a + b else f"{letter}+1")
    return Item([forms(k, a, b)[0].tex, forms(k, a, b)[2].tex], forms(k, a, b), wrong)


@of("math", "expressions in variables")
def expressions(rng):
    p, q, r = rng.sample(range(2, 13), 3)
    x, y = rng.choice((("x", "y"), ("a", "b"), ("m", "n"), ("r", "h")))
    families = (
        (
            (f"\\frac{{{x}+{p}}}{{{q}}}", f"\\frac{{{x}}}{{{q}}}+\\frac{{{p}}}{{{q}}}", f"\\frac{{{p}+{x}}}{{{q}}}", f"({x}+{p})/{q}", f"\\frac{{1}}{{{q}}}({x}+{p})"),
            (f"\\frac{{{x}}}{{{q}}}+{p}", f"\\frac{{{x}-{p}}}{{{q}}}", f"\\frac{{{x}+{p}}}{{{r}}}", f"\\frac{{{q}}}{{{x}+{p}}}", f"{x}+\\frac{{{p}}}{{{q}}}"),
        ),
        (
            (f"{p}{x}+{q}{y}", f"{q}{y}+{p}{x}", f"{p} {x} + {q} {y}", f"{p}\\cdot {x}+{q}\\cdot {y}", f"{p * r}{x}+{q}{y}-{p * (r - 1)}{x}"),
            (f"{q}{x}+{p}{y}", f"{p}{x}-{q}{y}", f"{p}{x}+{r}{y}", f"{p}{x}{y}+{q}", f"{p + q}{x}{y}"),
        ),
        (
            (f"\\frac{{{p}{x}}}{{{y}}}", f"{p}{x}/{y}", f"\\frac{{{p * r}{x}}}{{{r}{y}}}", f"{p}\\cdot\\frac{{{x}}}{{{y}}}", f"{p}{x}{y}^{{-1}}"),
            (f"\\frac{{{p}{y}}}{{{x}}}", f"\\frac{{{x}}}{{{p}{y}}}", f"{p}{x}{y}", f"\\frac{{{q}{x}}}{{{y}}}", f"\\frac{{{p}{x}^2}}{{{y}}}"),
        ),
        (
            (f"({x}+{y})({x}-{y})", f"{x}^2-{y}^2", f"-{y}^2+{x}^2", f"({x}-{y})({x}+{y})", f"({x}-{y})^2+2{x}{y}-2{y}^2"),
            (f"{x}^2+{y}^2", f"({x}-{y})^2", f"{y}^2-{x}^2", f"({x}+{y})^2", f"{x}-{y}"),
        ),
        (
            (f"{p}{x}^{{{q}}}", f"{p}\\cdot {x}^{{{q}}}", f"{p}{x}^{{{q - 1}}}\\cdot {x}" if q > 2 else f"{p}{x}\\cdot {x}", f"{x}^{{{q}}}\\cdot {p}"),
            (f"{p}{x}^{{{q + 1}}}", f"({p}{x})^{{{q}}}", f"{q}{x}^{{{p}}}", f"{p * q}{x}", f"{p}{x}^{{-{q}}}"),
        ),
        (
            (f"{p}^{{{x}}}\\cdot {p}^{{{q}}}", f"{p}^{{{x}+{q}}}", f"{p}^{{{q}+{x}}}", f"{p}^{{{q}}}\\cdot {p}^{{{x}}}"),
            (f"{p}^{{{q}{x}}}", f"{p}^{{{x}-{q}}}", f"{p}^{{{x}}}+{p}^{{{q}}}", f"{x}^{{{p}+{q}}}", f"{q}^{{{x}+{p}}}"),
        ),
        (
            (f"\\sqrt{{{x}^2+{p}}}", f"\\sqrt{{{p}+{x}^2}}", f"({x}^2+{p})^{{1/2}}", f"\\left({x}^2+{p}\\right)^{{\\frac{{1}}{{2}}}}"),
            (f"\\sqrt{{{x}^2-{p}}}", f"{x}+\\sqrt{{{p}}}", f"\\sqrt{{{x}^2+{q}}}", f"{x}^2+{p}", f"\\sqrt{{{x}^2}}+{p}"),
        ),
        (
            (f"\\sin({p}{x})", f"\\sin {p}{x}", f"\\sin\\left({p}{x}\\right)", f"2\\sin({p}{x})-\\sin({p}{x})"),
            (f"{p}\\sin {x}", f"\\cos({p}{x})", f"\\sin({q}{x})", f"-\\sin({p}{x})", f"\\sin({p}{y})"),
        ),
    )
    right, wrong = rng.choice(families)
    return Item(list(right[:1]), tex(*right), tex(*wrong))


def in_base(n, base):
    text = ""
    while n:
        text, n = str(n % base) + text, n // base
    return text or "0"


NAMES = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine"}


@of("math", "bases", 360)
def bases(rng):
    base = rng.choice(sorted(NAMES))
    n = rng.randint(base * base, 4000)

    def forms(n, base):
        digits = in_base(n, base)
        return tex(f"{digits}_{base}", f"{digits}_{{{base}}}", f"({digits})_{base}", f"{digits}_{{\\text{{{NAMES[base]}}}}}", f"({digits})_{{{base}}}")

    digits = in_base(n, base)
    wrong = forms(n + 1, base) + forms(n + base, base) + forms(n // base, base)
    larger = rng.choice([one for one in range(2, 10) if one > int(max(digits)) and one != base] or [9 if base != 9 else 0])
    wrong += tex(f"{digits}_{larger}", f"{digits}_{{{larger}}}") if larger and larger != base else []
    return Item([f"{digits}_{base}", f"{digits}_{{{base}}}"], forms(n, base), wrong)


@of("math", "ratios", 360)
def ratios(rng):
    while True:
        parts = [rng.randint(1, 40) for _ in range(rng.choice((2, 2, 3)))]
        if math.gcd(*parts) == 1 and len(set(parts)) == len(parts):
            break
    k = rng.randint(2, 4)

    def forms(parts):
        found = tex(":".join(map(str, parts)), " : ".join(map(str, parts)), ":".join(str(k * one) for one in parts)) + prose(":".join(map(str, parts)))
        return found + (tex(f"\\frac{{{parts[0]}}}{{{parts[1]}}}") if len(parts) == 2 else []) + prose(" to ".join(map(str, parts)))

    changed = list(parts)
    changed[rng.randrange(len(parts))] += 1
    order = rng.sample(parts, len(parts))
    wrong = forms(parts[::-1]) + (forms(changed) if Fraction(changed[0], changed[1]) != Fraction(parts[0], parts[1]) or len(parts) > 2 else [])
    wrong += forms(order) if order != parts else []
    return Item([":".join(map(str, parts)), " : ".join(map(str, parts))], forms(parts), wrong)
