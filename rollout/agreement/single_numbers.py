"""Classes of single numbers: whole, decimal, fractions, roots, powers, constants, with their dress."""
import math
from fractions import Fraction

from frames import both, prose, tex
from item import Item, grouped, of, other_whole


def whole_number(rng):
    """Returns a whole number of one to nine digits, negative in one of four cases."""
    digits = rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 7, 9))
    n = rng.randint(10 ** (digits - 1), 10**digits - 1)
    return -n if rng.random() < 0.25 else n


def spellings(n):
    """Returns the ordinary spellings of a whole number."""
    forms = both(str(n)) + tex(f"{n}.0") + prose(f"**{n}**")
    if n >= 0:
        forms += tex(f"+{n}")
    else:
        forms += both(f"\u2212{-n}") + tex(f"- {-n}")
    if abs(n) >= 1000:
        forms += both(grouped(n, ",")) + tex(grouped(n, "{,}"), grouped(n, "\\,"), grouped(n, ",\\!"), grouped(n, "\\;"))
    return forms


def labels(n):
    """Returns a whole number as MATH's labels have it."""
    return [str(n)] + ([grouped(n, ","), grouped(n, ",\\!"), grouped(n, "{,}")] if abs(n) >= 1000 else [])


@of("math", "whole numbers")
def whole(rng):
    n = whole_number(rng)
    return Item(labels(n), spellings(n), spellings(other_whole(rng, n)))


@of("math", "large numbers", 280)
def large(rng):
    n = rng.randint(10**17, 10 ** rng.choice((19, 22, 30, 36)))
    digits = str(n)
    at = rng.randrange(8, len(digits))
    other = int(digits[:at] + str((int(digits[at]) + rng.randint(1, 9)) % 10) + digits[at + 1 :])
    return Item([str(n)], both(str(n), grouped(n, ",")) + tex(grouped(n, "{,}")), both(str(other), grouped(other, ",")))


def decimal_text(value, places):
    """Returns an exact decimal with so many places."""
    sign, scaled = "-" if value < 0 else "", abs(value) * 10**places
    assert scaled.denominator == 1
    digits = str(scaled.numerator).rjust(places + 1, "0")
    return f"{sign}{digits[:-places]}.{digits[-places:]}"


@of("math", "decimals")
def decimals(rng):
    places = rng.randint(1, 4)
    n = whole_number(rng) % 10 ** rng.randint(2, 5) * rng.choice((1, 1, 1, -1))
    if n % 10 == 0:
        n += 3
    value = Fraction(n, 10**places)
    text = decimal_text(value, places)

    def forms(value):
        text = decimal_text(value, places)
        found = both(text, decimal_text(value, places + rng.randint(1, 2)))
        found += tex(f"\\frac{{{value.numerator}}}{{{value.denominator}}}") if value.denominator > 1 else both(str(value))
        if 0 < value < 1:
            found += both(text[1:])
        if value >= 1000:
            found += both(f"{int(value):,}" + text[text.index(".") :])
        return found

    other = Fraction(other_whole(rng, n), 10**places)
    if abs(other - value) < abs(value) / 50:
        other = value * rng.choice((10, Fraction(1, 10), -1))
        places += 1
        return Item([text], forms(value), both(decimal_text(other, places)))
    return Item([text], forms(value), forms(other))


def fraction(rng, most=60):
    """Returns a fraction that is no whole number."""
    while True:
        value = Fraction(rng.randint(1, most), rng.randint(2, most))
        if value.denominator > 1:
            return -value if rng.random() < 0.25 else value


def fraction_forms(value, rng, name="frac"):
    """Returns the ordinary spellings of a fraction."""
    sign, p, q = "-" if value < 0 else "", abs(value.numerator), value.denominator
    found = tex(f"{sign}\\frac{{{p}}}{{{q}}}", f"{sign}\\dfrac{{{p}}}{{{q}}}", f"{sign}\\tfrac{{{p}}}{{{q}}}")
    found += both(f"{sign}{p}/{q}") + prose(f"{sign}{p} / {q}")
    if sign:
        found += tex(f"\\frac{{-{p}}}{{{q}}}", f"\\frac{{{p}}}{{-{q}}}")
    k = rng.randint(2, 5)
    found += tex(f"{sign}\\frac{{{k * p}}}{{{k * q}}}", f"\\left({sign}\\frac{{{p}}}{{{q}}}\\right)")
    if p < 10 and q < 10:
        found += tex(f"{sign}\\frac{p}{q}", f"{sign}\\frac {p} {q}", f"{sign}\\frac{p}{{{q}}}")
    return found


def other_fraction(rng, value):
    """Returns a fraction upside down, of the other sign, or with another part."""
    p, q = value.numerator, value.denominator
    other = rng.choice((1 / value, -value, Fraction(p + 1, q), Fraction(p, q + 1), Fraction(p, q - 1 if q > 2 else q + 2), 1 - value, 2 * value))
    return other if other != value and other.denominator > 1 else -value


@of("math", "fractions")
def fractions(rng):
    value = fraction(rng)
    label = f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    return Item([label, f"{value.numerator}/{value.denominator}"], fraction_forms(value, rng), fraction_forms(other_fraction(rng, value), rng))


@of("math", "repeating decimals", 260)
def repeating(rng):
    digits = rng.choice((1, 1, 2, 3))
    nines = 10**digits - 1

    def forms(n, ahead):
        value, part = ahead + Fraction(n, nines), str(n).rjust(digits, "0")
        exact = tex(f"\\frac{{{value.numerator}}}{{{value.denominator}}}")
        return tex(f"{ahead}.\\overline{{{part}}}", f"{ahead}.\\bar{{{part}}}" if digits == 1 else f"{ahead}.\\overline{{{part}}}") + exact

    n, ahead = rng.randint(1, nines - 1), rng.randint(0, 4)
    other = n % (nines - 1) + 1
    value = ahead + Fraction(n, nines)
    wrong = forms(other, ahead) + tex(f"{ahead + 1}.\\overline{{{str(n).rjust(digits, '0')}}}", f"\\frac{{{value.numerator}}}{{{value.denominator + 1}}}")
    return Item([f"{ahead}.\\overline{{{str(n).rjust(digits, '0')}}}", f"\\frac{{{value.numerator}}}{{{value.denominator}}}"], forms(n, ahead), wrong)


@of("math", "mixed numbers")
def mixed(rng):
    part = abs(fraction(rng, 12))
    part -= int(part)
    w, p, q, sign = rng.randint(1, 30), part.numerator, part.denominator, rng.choice(("", "", "", "-"))

    def mixed_forms(sign, w, p, q):
        found = tex(f"{sign}{w}\\frac{{{p}}}{{{q}}}", f"{sign}{w}\\dfrac{{{p}}}{{{q}}}", f"{sign}{w} \\frac{{{p}}}{{{q}}}", f"{sign}{w}\\tfrac{{{p}}}{{{q}}}")
        return found + prose(f"{sign}{w} {p}/{q}")

    def improper(sign, n, q):
        return tex(f"{sign}\\frac{{{n}}}{{{q}}}") + both(f"{sign}{n}/{q}")

    right = mixed_forms(sign, w, p, q) + improper(sign, w * q + p, q)
    wrong = mixed_forms("" if sign else "-", w, p, q) + improper(sign, w * q + p + 1, q) + mixed_forms(sign, w + 1, p, q)
    if w * p != w * q + p:
        wrong += improper(sign, w * p, q) if math.gcd(w * p, q) == 1 else []
    if sign:
        # The sign belongs to the whole number, not to its whole part alone.
        wrong += improper("-", w * q - p, q)
    if 2 * p != q:
        wrong += mixed_forms(sign, w, q - p, q)
    label = rng.choice((f"{sign}{w}\\frac{{{p}}}{{{q}}}", f"{sign}\\frac{{{w * q + p}}}{{{q}}}"))
    return Item([label], right, wrong)


def square_free(rng, most=30):
    """Returns a whole number above one without square factors."""
    return rng.choice([n for n in range(2, most) if all(n % (k * k) for k in range(2, 6))])


@of("math", "roots")
def roots(rng):
    a, b, q = rng.randint(1, 12), square_free(rng), rng.choice((1, 1, 2, 3, 5, 7))
    sign = rng.choice(("", "", "-"))
    times = "" if a == 1 else str(a)
    over = lambda top: f"{sign}{top}" if q == 1 else f"{sign}\\frac{{{top}}}{{{q}}}"
    right = tex(over(f"{times}\\sqrt{{{b}}}"), over(f"\\sqrt{{{a * a * b}}}"), over(f"{a}\\cdot\\sqrt{{{b}}}"), over(f"{times} {b}^{{1/2}}" if a == 1 else f"{a}\\cdot {b}^{{1/2}}"))
    if q > 1:
        right += tex(f"{sign}{times}\\sqrt{{{b}}}/{q}", f"{sign}\\frac{{{a}}}{{{q}}}\\sqrt{{{b}}}", f"{sign}\\frac{{{a * b}}}{{{q}\\sqrt{{{b}}}}}")
    elif b < 10:
        right += tex(f"{sign}{times}\\sqrt{b}")
    wrong = tex(
        over(f"{a + 1}\\sqrt{{{b}}}"),
        over(f"{times}\\sqrt{{{b + 1}}}"),
        over(f"{times}\\sqrt[3]{{{b}}}"),
        over(f"{a * b}"),
        ("" if sign else "-") + over(f"{times}\\sqrt{{{b}}}")[len(sign) :],
        over(f"{a} + \\sqrt{{{b}}}") if (a, b) != (2, 4) and abs(a + b**0.5 - a * b**0.5) > 0.01 and q > 1 else over(f"{a + 2}\\sqrt{{{b}}}"),
    )
    return Item([over(f"{times}\\sqrt{{{b}}}")], right, wrong)


@of("math", "sums with roots", 320)
def root_sums(rng):
    a, b, c, q = rng.randint(1, 15), rng.randint(1, 6), square_free(rng), rng.choice((1, 1, 2, 3))
    top = lambda a, sign, b, c: f"{a}{sign}{'' if b == 1 else b}\\sqrt{{{c}}}"
    over = lambda top: top if q == 1 else f"\\frac{{{top}}}{{{q}}}"
    sign, other = rng.choice((("+", "-"), ("-", "+")))
    turned = f"{'' if b == 1 else b}\\sqrt{{{c}}}+{a}" if sign == "+" else f"-{'' if b == 1 else b}\\sqrt{{{c}}}+{a}"
    right = tex(over(top(a, sign, b, c)), over(turned), over(f"{a} {sign} \\sqrt{{{b * b * c}}}"))
    if q > 1:
        right += tex(f"\\frac{{{a}}}{{{q}}}{sign}\\frac{{{'' if b == 1 else b}\\sqrt{{{c}}}}}{{{q}}}", f"({top(a, sign, b, c)})/{q}")
    wrong = tex(over(top(a, other, b, c)), over(top(a + 1, sign, b, c)), over(top(a, sign, b + 1, c)), over(top(a, sign, b, c + 1)), over(f"\\sqrt{{{a * a + b * b * c}}}"))
    return Item([over(top(a, sign, b, c))], right, wrong)


UP = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


@of("math", "powers")
def powers(rng):
    b, e = rng.choice([(b, e) for b in range(2, 16) for e in range(2, 13) if b**e < 10**8 and b**e != e**b])
    value = b**e
    right = tex(f"{b}^{{{e}}}", f"{b}^{{{e - 1}}} \\cdot {b}", f"{b}^{{{e - 1}}} \\times {b}") + both(str(value)) + prose(f"{b}{str(e).translate(UP)}")
    if e < 10:
        right += both(f"{b}^{e}")
    if e % 2 == 0:
        right += tex(f"{b * b}^{{{e // 2}}}")
    wrong = tex(f"{b}^{{{e + 1}}}", f"{b + 1}^{{{e}}}", f"{e}^{{{b}}}", f"{b} \\cdot {e}" if b * e != value else f"{b}^{{{e + 2}}}", f"-{b}^{{{e}}}")
    return Item([f"{b}^{{{e}}}", str(value)], right, wrong + both(str(other_whole(rng, value))))


@of("math", "scientific notation")
def scientific(rng):
    mantissa, e = Fraction(rng.randint(11, 99), 10), rng.choice((-9, -6, -5, -4, -3, -2, 3, 4, 5, 6, 8, 9, 12, 23))

    def forms(m, e):
        value, m = m * Fraction(10) ** e, f"{m.numerator / m.denominator:g}"
        found = tex(f"{m} \\times 10^{{{e}}}", f"{m}\\cdot10^{{{e}}}", f"{m}\\times {{10}}^{{{e}}}") + prose(f"{m} × 10^{e}", f"{m} × 10{str(e).translate(UP)}")
        if -6 <= e < 0:
            found += both(decimal_text(value, 1 - e))
        elif 0 < e < 10 and value.denominator == 1:
            found += both(str(value)) + tex(grouped(int(value), "{,}"))
        return found

    wrong = forms(mantissa, e + rng.choice((-1, 1))) + forms(mantissa, -e) + forms(mantissa + Fraction(rng.choice((-5, 5, 3)), 10), e)
    m = f"{float(mantissa):g}"
    return Item([f"{m} \\times 10^{{{e}}}", f"{m}\\times10^{{{e}}}"], forms(mantissa, e), wrong)


@of("math", "constants")
def constants(rng):
    symbol = rng.choice(("\\pi", "\\pi", "\\pi", "e", "e^2", "\\pi^2", "\\ln 2", "\\ln 3"))
    value = fraction(rng, 12) if rng.random() < 0.6 else Fraction(rng.choice((1, 2, 3, 4, 6, 8, 9, 12, 16, 25, 36, 100, 144)))

    def forms(value, symbol):
        sign, p, q = "-" if value < 0 else "", abs(value.numerator), value.denominator
        times = "" if p == 1 else str(p)
        if q == 1:
            found = tex(f"{sign}{times}{symbol}", f"{sign}{p} {symbol}", f"{sign}{p}\\cdot {symbol}")
            return found + (prose(f"{sign}{times}\u03c0") if symbol == "\\pi" else [])
        found = tex(f"{sign}\\frac{{{times}{symbol}}}{{{q}}}", f"{sign}\\frac{{{p}}}{{{q}}}{symbol}", f"{sign}\\frac{{{p}}}{{{q}}} \\cdot {symbol}")
        if "ln" not in symbol:
            found += tex(f"{sign}{symbol}\\cdot\\frac{{{p}}}{{{q}}}")
            found += tex(f"{sign}{times}{symbol}/{q}", f"{sign}\\dfrac{{{times} {symbol}}}{{{q}}}")
        return found + (prose(f"{sign}{times}\u03c0/{q}") if symbol == "\\pi" else [])

    others = {"\\pi": "\\pi^2", "\\pi^2": "\\pi", "e": "e^2", "e^2": "e", "\\ln 2": "\\ln 3", "\\ln 3": "\\ln 2"}
    wrong = forms(value + rng.choice((1, -1)) or value + 2, symbol) if value not in (1, -1) else forms(2 * value, symbol)
    wrong += forms(-value, symbol) + forms(value, others[symbol]) + (forms(1 / value, symbol) if abs(value) != 1 else [])
    wrong += both(str(value.numerator)) if value.denominator == 1 else tex(f"\\frac{{{value.numerator}}}{{{value.denominator}}}")
    return Item([forms(value, symbol)[0].tex], forms(value, symbol), wrong)


@of("math", "percent")
def percent(rng):
    value = Fraction(rng.choice((rng.randint(1, 99), rng.randint(1, 999))), rng.choice((1, 1, 2, 4, 10)))

    def forms(value, others=True):
        number = f"{float(value):g}"
        found = tex(f"{number}\\%", f"{number} \\%", f"{number}\\text{{ percent}}") + prose(f"{number}%", f"{number} percent", f"**{number}%**")
        if others:
            hundredth = value / 100
            found += both(f"{float(hundredth):.5f}".rstrip("0").rstrip("."))
            found += tex(f"\\frac{{{hundredth.numerator}}}{{{hundredth.denominator}}}") if hundredth.denominator > 1 else []
        return found

    other = rng.choice((value + 1, value * 10, value / 2, 100 - value if value != 50 else value + 5, value + Fraction(1, 2)))
    if other <= 0:
        other = value + 2
    return Item([f"{float(value):g}\\%"], forms(value), forms(other, False) + tex(f"-{float(value):g}\\%"))


@of("math", "money")
def money(rng):
    cents = rng.choice((rng.randint(1, 300) * 100, rng.randint(100, 99999), rng.randint(1000, 50000) * 100))

    def forms(cents):
        dollars, rest = divmod(cents, 100)
        amounts = [f"{dollars}.{rest:02}", f"{dollars:,}.{rest:02}"] + ([str(dollars), f"{dollars:,}"] if rest == 0 else [])
        found = []
        for amount in amounts:
            found += tex(f"\\${amount}", f"{amount} \\text{{ dollars}}", f"\\$ {amount}") + prose(f"${amount}", f"{amount} dollars", f"**${amount}**") + both(amount)
        return found

    other = rng.choice((cents + 100, cents * 10, cents + 1000, abs(other_whole(rng, cents)) + (0 if cents > 1000 else 7)))
    if other == cents:
        other += 500
    plain = f"{cents // 100}.{cents % 100:02}" if cents % 100 else str(cents // 100)
    return Item([f"\\${plain}", plain], forms(cents), forms(other))


UNITS = (
    ("cm", "\\text{ cm}", "\\text{ centimeters}", "\\mathrm{~cm}", "\\,\\text{cm}", "\\ \\mathrm{cm}"),
    ("square units", "\\text{ square units}", "\\text{ units}^2", "\\mbox{ square units}"),
    ("cm^2", "\\text{ cm}^2", "\\text{ cm}^{2}", "\\mathrm{~cm}^2", "\\,\\mathrm{cm}^2"),
    ("meters per second", "\\text{ m}/\\text{s}", "\\ \\text{m/s}", "\\mathrm{~m} / \\mathrm{s}", "\\ \\mathrm{m}\\cdot\\mathrm{s}^{-1}"),
    ("m/s^2", "\\text{ m/s}^2", "\\ \\mathrm{m/s^2}", "\\,\\text{m}\\,\\text{s}^{-2}"),
    ("hours", "\\text{ hours}", "\\text{ hrs}", "\\text{ h}", "\\,\\mathrm{h}"),
    ("mph", "\\text{ mph}", "\\text{ miles per hour}", "\\text{ miles/hour}"),
    ("km/h", "\\text{ km/h}", "\\ \\mathrm{km/h}", "\\,\\frac{\\text{km}}{\\text{h}}"),
    ("apples", "\\text{ apples}", "\\mbox{ apples}"),
    ("students", "\\text{ students}",),
    ("kg", "\\text{ kg}", "\\mathrm{~kg}", "\\,\\text{kg}"),
    ("liters", "\\text{ liters}", "\\text{ L}", "\\ \\mathrm{L}"),
    ("pounds", "\\text{ pounds}", "\\text{ lb}"),
    ("degrees", "^\\circ", "^{\\circ}", "\\text{ degrees}", "\u00b0"),
    ("inches", "\\text{ inches}", "\\text{ in}", "\\text{ in.}"),
)


@of("math", "units", 640)
def units(rng):
    unit, *dresses = rng.choice(UNITS)
    n = rng.choice((rng.randint(1, 99), rng.randint(2, 2000)))
    values = [f"{n}", f"{n}.5"] if rng.random() < 0.3 else [f"{n}"]
    value = values[-1]

    def forms(value):
        return tex(*(value + dress for dress in dresses)) + prose(f"{value} {unit}") + both(value)

    others = [value.replace(str(n), str(abs(other_whole(rng, n)) or n + 1)), value.replace(str(n), str(n + 1))]
    other = next(one for one in others if one != value)
    return Item([value + dresses[0], value], forms(value), forms(other))


@of("math", "words of scale", 360)
def scale(rng):
    word, factor = rng.choice((("thousand", 10**3), ("million", 10**6), ("million", 10**6), ("billion", 10**9), ("dozen", 12)))
    n = rng.randint(2, 60)
    if word != "dozen" and n % 3 == 0:
        count, value = f"{n}.5", n * factor + factor // 2
    else:
        count, value = str(n), n * factor
    money = word != "dozen" and rng.random() < 0.3
    mark = "\\$" if money else ""
    right = tex(f"{mark}{count}\\text{{ {word}}}", f"{mark}{count} \\text{{ {word}}}") + prose(f"{mark[1:]}{count} {word}") + both(str(value), f"{value:,}")
    other = {"thousand": "million", "million": "billion", "billion": "million", "dozen": "million"}[word]
    wrong = tex(f"{mark}{count}\\text{{ {other}}}") + prose(f"{mark[1:]}{count} {other}") + both(str(value * 10), str(value + factor))
    wrong += tex(f"{mark}{n + 1}\\text{{ {word}}}") if count == str(n) else []
    if rng.random() < 0.5:
        # With a label in words the count alone could be meant in that scale.
        return Item([f"{mark}{count}\\text{{ {word}}}"], right, wrong)
    return Item([str(value)], right, wrong + tex(f"{mark}{count}") + prose(f"{mark[1:]}{count}"))


BELOW_TWENTY = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()


@of("math", "numbers in words", 160)
def words(rng):
    n = rng.randint(0, 19)
    other = rng.choice([one for one in range(20) if one != n])
    forms = lambda n: prose(BELOW_TWENTY[n], BELOW_TWENTY[n].capitalize()) + tex(f"\\text{{{BELOW_TWENTY[n]}}}")
    return Item([str(n)], forms(n), forms(other))


@of("math", "ordinals", 200)
def ordinals(rng):
    n = rng.randint(4, 99)

    def forms(n):
        ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
        return tex(f"{n}^{{\\text{{{ending}}}}}", f"{n}\\text{{{ending}}}", f"{n}^{{\\mathrm{{{ending}}}}}") + prose(f"{n}{ending}")

    other = rng.choice([one for one in (n + 1, n - 1, n + 10, int(str(n)[::-1])) if one not in (n, 0)])
    return Item([form.tex for form in forms(n)[:2]], forms(n), forms(other))
