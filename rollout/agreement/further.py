"""Further spellings: forms and frames that are rarer than those of the other classes, and as clear."""
import math
from fractions import Fraction

from frames import Form, both, prose, reasoning, tex
from item import Item, of, other_whole, signed

FRAMES = (
    "{r}\n\nSo the final answer should be {x}.",
    "{r}\n\n**The answer is {x}**",
    "{r}\n\nThe final answer is:\n\n{x}",
    "{r}\n\n## Answer\n\n{x}",
    "{r}\n\n### Final Answer\n\n{x}",
    "{r}\n\nANSWER: {x}",
    "{r}\n\nFinal answer: {x}.",
    "{r}\n\nFINAL ANSWER: {x}",
    "{r}\n\n<answer>The answer is {x}</answer>",
    "{r}\n\n<answer>\n{x}\n</answer>",
    "{r}\n\nThe answer to the problem is {x}.",
    "{r}\n\n**Answer**: {x}",
    "{r}\n\n_Answer:_ {x}",
    "{r}\n\nOur final answer is therefore {x}.",
    "{r}\n\nThe correct answer is {x}.",
    "{r}\n\nHence the answer equals {x}.",
)
BOXED = (
    "{r}\n\nThe answer is \\boxed{{{x}}}, as claimed.",
    "{r}\n\n$\\boxed{{ {x} }}$",
    "{r}\n\n$$\n\\boxed{{\\displaystyle {x}}}\n$$",
    "{r}\n\n\\begin{{equation}}\n\\boxed{{{x}}}\n\\end{{equation}}",
    "{r}\n\n\\[ \\boxed{{\\,{x}\\,}} \\]",
    "{r}\n\n$\\boxed{{{x}}}$\n\nThis completes the solution of all 3 parts.",
    "{r}\n\n$\\boxed {{{x}}}$",
    "{r}\n\n\\fbox{{{x}}}",
    "{r}\n\n\\begin{{align*}}\ny &= 1 + 1 \\\\\n&= \\boxed{{{x}}}\n\\end{{align*}}",
    "{r}\n\n**Answer:** $\\boxed{{{x}}}$ (checked 2 times)",
    "{r}\n\n\\boxed{{{x}}}.",
    "{r}\n\nAnswer: \\(\\boxed{{{x}}}\\)\n\nLet me know if you have 1 more question!",
)


def text(rng, form):
    r = reasoning(rng)
    if form.tex is not None and (form.prose is None or rng.random() < 0.5):
        if rng.random() < 0.6:
            return rng.choice(BOXED).format(r=r, x=form.tex)
        return rng.choice(FRAMES).format(r=r, x=f"${form.tex}$")
    return rng.choice(FRAMES).format(r=r, x=form.inline())


def further(name, count=160):
    return of("math", f"further {name}", count)


UNITS_OF_TEN = "twenty thirty forty fifty sixty seventy eighty ninety".split()
DIGITS = "one two three four five six seven eight nine".split()


def in_words(n):
    """Returns a number from 21 to 99 in words."""
    ten, rest = divmod(n, 10)
    return UNITS_OF_TEN[ten - 2] + (f"-{DIGITS[rest - 1]}" if rest else "")


@further("whole numbers", 240)
def whole(rng):
    n = rng.choice((rng.randint(21, 99), rng.randint(100, 999), rng.randint(10**4, 10**7)))
    spaced = f"{n:,}".replace(",", " ")

    def forms(n):
        found = tex(f"\\mathbf{{{n}}}", f"\\text{{{n}}}", f"{{{n}}}", f"\\,{n}", f"\\left({n}\\right)", f"{n}\\!") + prose(f"`{n}`", f"__{n}__", f"*{n}*")
        if 21 <= n <= 99:
            found += prose(in_words(n), in_words(n).capitalize(), f"{n} ({in_words(n)})", f"{in_words(n)} ({n})")
        if n > 9999:
            found += both(f"{n:,}".replace(",", " ")) + tex(f"{n:,}".replace(",", "~"), f"{n:,}".replace(",", "\\ "), f"{n:,}".replace(",", "\\:"))
        return found

    other = abs(other_whole(rng, n))
    other = other if other != n else n + 1
    return Item([str(n)] + ([spaced] if n > 9999 else []), forms(n), forms(other), text)


@further("fractions", 240)
def fractions(rng):
    while True:
        p, q = rng.randint(1, 19), rng.randint(2, 19)
        if math.gcd(p, q) == 1:
            break

    def forms(p, q):
        found = tex(f"\\cfrac{{{p}}}{{{q}}}", f"{{{p} \\over {q}}}", f"\\frac {{{p}}} {{{q}}}", f"\\frac{{ {p} }}{{ {q} }}", f"{p} \\div {q}", f"\\frac{{1}}{{\\frac{{{q}}}{{{p}}}}}", f"{p}\\cdot\\frac{{1}}{{{q}}}", f"{p} \\cdot {q}^{{-1}}", f"\\tfrac {{{p}}}{{{q}}}")
        return found + prose(f"{p}/{q}.", f"({p}/{q})", f"{p} ÷ {q}")

    other = rng.choice(((q, p), (p + 1, q), (p, q + 1), (p + q, q)))
    if Fraction(*other) == Fraction(p, q):
        other = (p + q, q)
    return Item([f"\\frac{{{p}}}{{{q}}}", f"\\dfrac{{{p}}}{{{q}}}", f"\\tfrac{{{p}}}{{{q}}}"], forms(p, q), forms(*other), text)


@further("roots", 240)
def roots(rng):
    a, b = rng.randint(2, 9), rng.choice((2, 3, 5, 6, 7, 10, 11))
    family = rng.randrange(3)
    if family == 0:
        forms = lambda a, b: prose(f"{a}√{b}", f"{a}*sqrt({b})", f"{a}\\sqrt{{{b}}}") + tex(f"{a}\\sqrt {{{b}}}", f"{a}\\sqrt[2]{{{b}}}", f"{a}\\cdot {b}^{{\\frac{{1}}{{2}}}}", f"{a} \\times \\sqrt{{{b}}}", f"\\sqrt{{{b}}}\\cdot {a}", f"{{{a}}}\\sqrt{{{b}}}", f"{a}\\,\\sqrt{{{b}}}")
        return Item([f"{a}\\sqrt{{{b}}}"], forms(a, b), forms(a + 1, b) + forms(a, b + 1), text)
    if family == 1:
        forms = lambda a, b: tex(f"\\sqrt{{\\frac{{{b}}}{{{a * a}}}}}", f"\\frac{{\\sqrt{{{b}}}}}{{{a}}}", f"\\frac{{1}}{{{a}}}\\sqrt{{{b}}}", f"\\sqrt{{{b}}}/{a}", f"\\frac{{\\sqrt{{{4 * b}}}}}{{{2 * a}}}") + prose(f"√{b}/{a}", f"sqrt({b})/{a}")
        return Item([f"\\frac{{\\sqrt{{{b}}}}}{{{a}}}"], forms(a, b), forms(a + 1, b) + forms(a, b + 1), text)
    forms = lambda a: tex(f"\\sqrt[3]{{{a}}}", f"{a}^{{1/3}}", f"{a}^{{\\frac{{1}}{{3}}}}", f"\\sqrt[6]{{{a * a}}}", f"\\frac{{\\sqrt[3]{{{8 * a}}}}}{{2}}") + prose(f"∛{a}")
    return Item([f"\\sqrt[3]{{{b}}}"], forms(b), forms(b + 1) + tex(f"\\sqrt{{{b}}}", f"\\frac{{{b}}}{{3}}", f"3\\sqrt{{{b}}}"), text)


@further("functions of numbers", 240)
def functions(rng):
    n, k = rng.randint(2, 9), rng.randint(2, 6)
    total = n + k
    binomial = math.comb(total, k)
    value, spellings = rng.choice(
        (
            (math.factorial(k), [f"{k}!"]),
            (binomial, [f"\\binom{{{total}}}{{{k}}}", f"\\dbinom{{{total}}}{{{k}}}", f"\\frac{{{total}!}}{{{k}!\\,{n}!}}"]),
            (k, [f"\\log_{{{n}}} {n**k}", f"\\log_{n}({n**k})", f"\\log_{{{n}}}{{{n**k}}}"]),
            (n, [f"\\left|-{n}\\right|", f"|-{n}|", f"\\lvert -{n} \\rvert", f"\\sqrt{{{n * n}}}"]),
            (n, [f"{n}\\cos 0", f"{2 * n}\\sin 30^\\circ", f"{2 * n}\\sin\\frac{{\\pi}}{{6}}", f"{n}\\tan\\frac{{\\pi}}{{4}}", f"{2 * n}\\cos 60^{{\\circ}}"]),
            (k, [f"\\ln e^{{{k}}}", f"\\ln(e^{k})", f"\\lg 10^{{{k}}}"]),
            (n, [f"\\lfloor {n}.7 \\rfloor", f"\\left\\lceil {n - 1}.3 \\right\\rceil"]),
            (n * k, [f"{n} \\times {k}", f"{n}\\cdot{k}", f"{n}({k})", f"({n})({k})"]),
            (n**2 + k**2, [f"{n}^2+{k}^2", f"{n}^{{2}} + {k}^{{2}}"]),
        )
    )
    wrong = [str(value + 1), str(value + 10), f"-{value}", f"{k + 7}!" if value != math.factorial(k + 7) else "1", f"\\frac{{{value}}}{{2}}"]
    return Item([str(value)], tex(*spellings), tex(*wrong), text)


@further("complex numbers", 200)
def complex_numbers(rng):
    a, b = rng.choice([n for n in range(-9, 10) if n]), rng.choice([n for n in range(-9, 10) if n not in (0, 1, -1)])

    def forms(a, b):
        sign, size = ("+", b) if b > 0 else ("-", -b)
        return tex(f"{a}{sign}{size}i", f"{a} {sign} {size} i", f"{b}i{signed(a)}", f"{a}{sign}i\\cdot {size}", f"{a}{sign}{size}\\mathrm{{i}}", f"\\frac{{{2 * a}{sign}{2 * size}i}}{{2}}") + prose(f"{a} {sign} {size}i")

    wrong = forms(a, -b) + forms(-a, b) + forms(a + 1 or 3, b) + (forms(b, a) if a != b and abs(a) > 1 else [])
    return Item([f"{a}{'+' if b > 0 else '-'}{abs(b)}i"], forms(a, b), wrong, text)


@further("intervals", 320)
def intervals(rng):
    a = rng.randint(-9, 9)
    b = a + rng.randint(1, 9)
    family = rng.randrange(5)
    if family == 0:
        right = tex(f"[{a}, +\\infty)", f"x \\geqslant {a}", f"\\{{x \\in \\mathbb{{R}} : x \\ge {a}\\}}", f"\\{{x \\mid x \\geq {a}\\}}", f"[{a},\\infty[", f"[{a}; \\infty)") + prose(f"[{a}, ∞)", f"x ≥ {a}", f"x >= {a}")
        wrong = tex(f"({a}, +\\infty)", f"x > {a}", f"x \\leqslant {a}", f"[{a + 1}, +\\infty)", f"\\{{x \\in \\mathbb{{R}} : x > {a}\\}}") + prose(f"({a}, ∞)", f"x ≤ {a}", f"x > {a}")
        return Item([f"[{a},\\infty)"], right, wrong, text)
    if family == 1:
        right = tex(f"(-\\infty, {a})\\cup({a}, \\infty)", f"x \\neq {a}", f"x \\ne {a}", f"\\mathbb{{R}} \\setminus \\{{{a}\\}}", f"(-\\infty,{a}) \\cup ({a},+\\infty)") + prose(f"(-∞, {a}) ∪ ({a}, ∞)", f"x ≠ {a}")
        wrong = tex(f"x \\neq {a + 1}", f"x = {a}", f"\\mathbb{{R}} \\setminus \\{{{a - 1}\\}}", f"(-\\infty, {a}]\\cup({a}, \\infty)", "\\mathbb{R}") + prose(f"x ≠ {a + 1}")
        return Item([f"(-\\infty,{a})\\cup({a},\\infty)"], right, wrong, text)
    if family == 2:
        right = tex(f"({a}; {b}]", f"]{a}; {b}]", f"{a} < x \\leqslant {b}", f"{b} \\ge x > {a}", f"x \\in \\left({a}, {b}\\right]") + prose(f"{a} < x ≤ {b}", f"{a} < x <= {b}", f"x ∈ ({a}, {b}]")
        wrong = tex(f"[{a}; {b})", f"{a} \\le x < {b}", f"[{a}, {b}]", f"({a}, {b + 1}]", f"{b} > x \\ge {a}") + prose(f"{a} ≤ x < {b}", f"{a} <= x <= {b}")
        return Item([f"({a},{b}]"], right, wrong, text)
    if family == 3:
        right = tex("(-\\infty,\\infty)", "\\mathbb{R}", "(-\\infty, +\\infty)", "x \\in \\mathbb{R}", "\\left(-\\infty,\\infty\\right)") + prose("(-∞, ∞)", "ℝ")
        return Item(["(-\\infty,\\infty)", "\\mathbb{R}"], right, tex("[0,\\infty)", "\\emptyset", f"(-\\infty,{a})", "\\mathbb{Z}", "\\mathbb{Q}", f"({a},\\infty)"), text)
    right = tex("\\emptyset", "\\varnothing", "\\{\\}", "\\{ \\}") + prose("∅")
    return Item(["\\emptyset", "\\varnothing"], right, tex("\\{0\\}", "\\mathbb{R}", "0", f"\\{{{a}\\}}"), text)


@further("lists and tuples", 320)
def several(rng):
    a, b, c = rng.sample(range(-20, 30), 3)
    family = rng.randrange(4)
    if family == 0:
        forms = lambda a, b, c: prose(f"{a}, {b} and {c}", f"{{{b}, {a}, {c}}}", f"x = {a}, x = {c}, x = {b}", f"x₁ = {a}, x₂ = {b}, x₃ = {c}") + tex(f"x = {a}, x = {c}, x = {b}", f"x_1 = {b}, x_2 = {a}, x_3 = {c}", f"x \\in \\{{{a}, {b}, {c}\\}}", f"{c};\\ {a};\\ {b}", f"{a}, {b}, \\text{{and }} {c}", f"{c},\\, {b},\\, {a}", f"\\{{{c}; {a}; {b}\\}}")
        return Item([f"{a},{b},{c}", f"{a}, {b}, {c}"], forms(a, b, c), forms(a, b, c + 50) + forms(a, b, a), text)
    if family == 1:
        forms = lambda a, b: tex(f"({a}; {b})", f"({a},\\, {b})", f"\\bigl({a}, {b}\\bigr)", f"\\left( {a} , {b} \\right)", f"(x, y) = \\left({a}, {b}\\right)", f"\\big({a},{b}\\big)", f"({a},~{b})") + prose(f"({a}; {b})", f"(x, y) = ({a}, {b})")
        return Item([f"({a},{b})", f"({a}, {b})"], forms(a, b), forms(b, a) + forms(a + 1, b) + forms(a, -b if b else 60), text)
    if family == 2:
        forms = lambda a, b: tex(f"\\begin{{bmatrix}} {a} \\\\ {b} \\end{{bmatrix}}", f"\\begin{{pmatrix}}\n{a} \\\\\n{b}\n\\end{{pmatrix}}", f"\\left(\\begin{{array}}{{r}} {a} \\\\ {b} \\end{{array}}\\right)", f"\\begin{{pmatrix}}{a}\\\\[2pt]{b}\\end{{pmatrix}}", f"\\left(\\begin{{matrix}} {a} \\\\ {b} \\end{{matrix}}\\right)")
        return Item([f"\\begin{{pmatrix}} {a} \\\\ {b} \\end{{pmatrix}}"], forms(a, b), forms(b, a) + forms(a, b + 1), text)
    forms = lambda a, b, c: tex(f"({a}; {b}; {c})", f"\\left({a}, {b}, {c}\\right)", f"(x,y,z)=({a},{b},{c})", f"({a} , {b} , {c})") + prose(f"({a}, {b}, {c})")
    return Item([f"({a},{b},{c})"], forms(a, b, c), forms(a, c, b) + forms(b, a, c) + forms(a, b, c + 1) + tex(f"({a}, {b})"), text)


@further("expressions", 400)
def expressions(rng):
    p, q = rng.sample(range(2, 10), 2)
    families = (
        ((f"(x+{p})^2", f"x^2+{2 * p}x+{p * p}", f"(x+{p})(x+{p})", f"({p}+x)^{{2}}", f"x^{{2}} + {2 * p}x + {p * p}"), (f"x^2+{p * p}", f"(x-{p})^2", f"x^2+{p}x+{p * p}", f"(x+{p})^3")),
        ((f"\\frac{{1}}{{x^{{{p}}}}}", f"x^{{-{p}}}", f"1/x^{{{p}}}", f"\\left(\\frac{{1}}{{x}}\\right)^{{{p}}}"), (f"x^{{{p}}}", f"-x^{{{p}}}", f"\\frac{{1}}{{{p}x}}", f"\\frac{{{p}}}{{x}}")),
        ((f"e^{{{2 * p}x}}", f"(e^{{x}})^{{{2 * p}}}", f"\\left(e^{{{p}x}}\\right)^2", f"e^{{{p}x}}\\cdot e^{{{p}x}}", f"\\exp({2 * p}x)"), (f"e^{{{p}x}}", f"{2 * p}e^{{x}}", f"e^{{-{2 * p}x}}", f"e^{{x^{{{2 * p}}}}}")),
        ((f"\\frac{{{p}}}{{x+{q}}}", f"{p}/(x+{q})", f"\\frac{{{p}}}{{{q}+x}}", f"{p}(x+{q})^{{-1}}", f"\\frac{{{2 * p}}}{{2x+{2 * q}}}"), (f"\\frac{{{p}}}{{x}}+{q}", f"\\frac{{{q}}}{{x+{p}}}", f"\\frac{{{p}}}{{x-{q}}}", f"\\frac{{x+{q}}}{{{p}}}")),
        ((f"{p}x^3-{q}x", f"x({p}x^2-{q})", f"-{q}x+{p}x^3", f"{p}x^{{3}}-{q}x"), (f"{p}x^3+{q}x", f"{p}x^2-{q}x", f"{q}x^3-{p}x", f"{p}x^3-{q}")),
        ((f"{p}a^2b", f"{p}ba^2", f"{p} a^{{2}} b", f"{p}\\cdot a\\cdot a\\cdot b", f"ab\\cdot {p}a"), (f"{p}ab^2", f"{q}a^2b", f"{p}a^2", f"{p}ab", f"-{p}a^2b")),
        ((f"\\cos^2 x", "1-\\sin^2 x", "(\\cos x)^2", "\\cos^{2}(x)", "\\cos x\\cdot\\cos x"), ("\\sin^2 x", "\\cos 2x", "\\cos x^2", "1+\\sin^2 x", "\\cos x")),
        ((f"\\frac{{n(n+1)}}{{2}}", "\\frac{n^2+n}{2}", "\\frac{1}{2}n(n+1)", "n(n+1)/2", "\\binom{n+1}{2}"), ("\\frac{n(n-1)}{2}", "n(n+1)", "\\frac{n^2+1}{2}", "\\frac{n+1}{2}")),
        ((f"2^{{n+{p}}}", f"2^{{{p}+n}}", f"2^{p}\\cdot 2^n", f"{2**p}\\cdot 2^n", f"{2 ** (p - 1)} \\cdot 2^{{n+1}}"), (f"2^{{n}}+{p}", f"2^{{{p}n}}", f"2^{{n-{p}}}", f"{p + 1}^{{n+{p}}}")),
        ((f"{p}\\pi r^2", f"{p} r^2 \\pi", f"\\pi\\cdot {p}r^{{2}}", f"{p}\\pi\\cdot r\\cdot r"), (f"{p}\\pi r", f"{q}\\pi r^2", f"{p}r^2", f"{p}\\pi r^3", f"{p}\\pi R^2")),
        ((f"y = (x-{p})^2+{q}", f"y=x^2-{2 * p}x+{p * p + q}", f"y-{q}=(x-{p})^2", f"(x-{p})^2+{q}=y"), (f"y = (x+{p})^2+{q}", f"y = (x-{p})^2-{q}", f"y=(x-{q})^2+{p}", f"x=(y-{p})^2+{q}")),
        ((f"{p}x-{q}y=6", f"-{p}x+{q}y=-6", f"{2 * p}x-{2 * q}y=12", f"{p}x = {q}y+6", f"{p}x-{q}y-6=0"), (f"{p}x+{q}y=6", f"{p}x-{q}y=-6", f"{q}x-{p}y=6", f"{p}x-{q}y=7")),
    )
    right, wrong = rng.choice(families)
    return Item([right[0]], tex(*right), tex(*wrong), text)


@further("dressed numbers", 400)
def dressed(rng):
    n = rng.randint(2, 97)
    family = rng.randrange(7)
    other = n + rng.choice((1, 10, 2))
    if family == 0:
        forms = lambda n: prose(f"{n} USD", f"USD {n}", f"${n}.00", f"US${n}", f"{n} US dollars") + tex(f"\\${n}.00", f"\\text{{\\${n}}}", f"{n}\\,\\text{{USD}}")
        return Item([f"\\${n}", str(n)], forms(n), forms(other), text)
    if family == 1:
        forms = lambda n: prose(f"€{n}", f"{n} €", f"{n} euros") + tex(f"{n}\\text{{ euros}}", f"{n}\\,\\text{{€}}")
        return Item([str(n), f"{n}\\text{{ euros}}"], forms(n), forms(other), text)
    if family == 2:
        forms = lambda n: tex(f"{n}\\text{{ cm}}^3", f"{n}\\,\\mathrm{{cm^3}}", f"{n}~\\text{{cm}}^3", f"{n}\\ \\text{{cubic centimeters}}", f"{n} \\, \\text{{cm}}^{{3}}") + prose(f"{n} cm^3", f"{n} cm³", f"{n} cubic centimeters")
        return Item([str(n), f"{n}\\text{{ cm}}^3"], forms(n), forms(other), text)
    if family == 3:
        forms = lambda n: tex(f"{n}^\\circ", f"{n}\\degree", f"{n}{{}}^\\circ", f"{n}^{{\\circ}}") + prose(f"{n}°", f"{n} deg", f"{n} degrees")
        return Item([str(n), f"{n}^\\circ"], forms(n), forms(other), text)
    if family == 4:
        forms = lambda n: prose(f"{n} per cent", f"{n}.0%", f"{n} %") + tex(f"{n}\\text{{\\%}}", f"{n}.0\\%", f"{n}\\,\\%")
        return Item([f"{n}\\%"], forms(n), forms(other), text)
    if family == 5:
        hour = n % 12 + 1
        forms = lambda hour: prose(f"{hour}:05 PM", f"{hour}:05 P.M.", f"{hour}:05pm", f"{hour + 12 if hour < 12 else 12}:05") + tex(f"{hour}\\text{{:}}05\\text{{ p.m.}}", f"\\text{{{hour}:05 PM}}", f"{hour}:05\\,\\text{{pm}}")
        return Item([f"{hour}:05 \\text{{ p.m.}}", f"{hour}:05\\text{{ PM}}"], forms(hour), forms(hour % 12 + 1) + prose(f"{hour}:05 AM", f"{hour}:50 PM"), text)
    digits = bin(n + 8)[2:]
    forms = lambda digits: tex(f"{digits}_{{(2)}}", f"{digits}_\\text{{two}}", f"\\left({digits}\\right)_{{2}}", f"{{{digits}}}_2") + prose(f"{digits} (base 2)", f"{digits} base 2", f"{digits}₂", f"{digits} in base 2")
    return Item([f"{digits}_2", f"{digits}_{{2}}"], forms(digits), forms(bin(n + 9)[2:]), text)


WAYS = (
    "The answer is choice {x}.",
    "It's {x}.",
    "Correct option: {x}",
    "Hence {x} is the correct answer.",
    "{x} is correct.",
    "**{x}. {thing}**",
    "({x}) {thing} is the right answer.",
    "Final Answer: \\boxed{{{x}}}",
    "Answer: Option {x}",
    "I would go with {x}.",
    "The answer is therefore {x}.",
    "Answer: {x} because {other} needs more energy.",
    "The answer is {x}, not {other}.",
    "{x}) {thing}",
    "{x}: {thing}",
    "The best answer is {x}.",
    "So the answer must be {x}.",
    "**Final Answer:** ({x})",
    "## Answer\n\n{x}",
    "Answer\n\n{x}",
    "$\\textbf{{({x})}}$",
    "$\\boxed{{\\mathrm{{{x}}}}}$",
    "<answer>\n{x}\n</answer>",
    "<answer>{x}. {thing}</answer>",
    "Option {x} is the correct one.",
    "We select option {x}.",
    "Thus, the correct answer is **({x}) {thing}**.",
    "The right choice is {x}.",
    "ANSWER: {x}",
    "My answer is ({x}).",
    "Choice {x} is right.",
)


@of("choice", "further choices", 600)
def choices(rng):
    from choices import THINGS, eliminate

    letters = "ABCDEF"[: rng.choice((4, 4, 5, 6))]
    things = rng.sample(THINGS, len(letters))
    one, other = rng.sample(letters, 2)

    def text(rng, form):
        letter = form.prose
        second = rng.choice([x for x in letters if x != letter])
        ends = rng.choice([way for way in WAYS if letter != "A" or way[:5] != "{x} is"]).format(x=letter, thing=things[letters.index(letter)], other=second)
        return rng.choice(("", eliminate(rng, letters, things) + "\n\n")) + ends

    return Item([one], prose(one), prose(other), text)


SOLUTIONS = (
    "{s}\n#### {x} clips",
    "{s}\n\nTotal: {x}",
    "{s}\nTherefore, Natalia sold {x} clips altogether.",
    "{s}\n\nThe total is ${x}.",
    "{s}\n\n**${x}**",
    "{s}\n\n\\[\n\\boxed{{\\text{{{x}}}}}\n\\]",
    "{s}\n\nFinal Answer: {x}",
    "{s}\n\n### Answer: {x}",
    "{s}\n\n## Final Answer\n\n\\boxed{{{x}}}",
    "{s}\n\n$\\boxed{{{x}\\text{{ clips}}}}$",
    "{s}\n\n#### Answer: {x}",
    "{s}\n\n####{x}",
    "{s}\n\nThe answer is {x} dollars.",
    "{s}\n\nThe answer is: {x}.",
    "{s}\n\n$$x = {x}$$",
    "{s}\n\n<answer>${x}</answer>",
    "{s}\nSo she has {x} left.\n\n#### {x}\n\nI hope this helps!",
)


@of("gsm8k", "further gsm8k texts", 600)
def gsm8k(rng):
    from whole_texts import story

    cents = rng.random() < 0.25
    n = rng.choice((rng.randint(2, 99), rng.randint(100, 9999)))
    other = abs(other_whole(rng, n))
    other = other if other != n else n + 1
    spell = (lambda n: f"{n}.5") if cents else str
    right = prose(spell(n), f"{spell(n)}0") if cents else prose(str(n), f"{n:,}")
    wrong = prose(spell(other)) if cents else prose(str(other), f"{other:,}")

    def text(rng, form):
        return rng.choice(SOLUTIONS).format(s=story(rng), x=form.prose)

    return Item([spell(n), f"{story(rng, 2)}\n#### {spell(n)}"], right, wrong, text)
