"""Classes of words, names of points, and letters of options."""
from frames import both, prose, tex
from item import Item, of

OPPOSITES = (
    ("Yes", "No"),
    ("even", "odd"),
    ("True", "False"),
    ("increasing", "decreasing"),
    ("ellipse", "hyperbola"),
    ("parabola", "circle"),
    ("Monday", "Tuesday"),
    ("Saturday", "Sunday"),
    ("Evelyn", "Carla"),
    ("Alice", "Bob"),
    ("red", "blue"),
    ("rational", "irrational"),
    ("convergent", "divergent"),
    ("obtuse", "acute"),
    ("isosceles", "equilateral"),
    ("rectangle", "triangle"),
    ("north", "south"),
    ("odd function", "even function"),
)


@of("math", "words", 440)
def words(rng):
    one, other = rng.choice(OPPOSITES)[:: rng.choice((1, -1))]

    def forms(word):
        cases = (word, word.lower(), word[0].upper() + word[1:])
        found = tex(*(f"\\text{{{case}}}" for case in cases), f"\\textbf{{{word}}}", f"\\mathrm{{{word.replace(' ', '~')}}}")
        return found + prose(*cases, f"**{word}**") + (both(word) if " " not in word else [])

    return Item([f"\\text{{{one}}}", one], forms(one), forms(other))


@of("math", "names of points", 260)
def point_names(rng):
    letters = "".join(rng.sample("ABCDEFGHKLMNPQRST", rng.choice((3, 4, 4, 5))))
    order = letters
    # Read backwards it can be the same angle or figure, as can a turned figure.
    turned = {(letters[::step] * 2)[at : at + len(letters)] for step in (1, -1) for at in range(len(letters))}
    if len(letters) == 3:
        # The middle one of three letters is the vertex of the angle.
        order = letters[1] + letters[0] + letters[2]
        return Item([f"\\angle {letters}"], tex(f"\\angle {letters}", f"\\angle{{{letters}}}", f"\\angle\\text{{{letters}}}"), tex(f"\\angle {order}", f"\\angle {letters[0]}{letters[2]}{letters[1]}"))
    while order in turned:
        order = "".join(rng.sample(letters, len(letters)))
    changed = letters[:-1] + rng.choice([one for one in "UVWXYZ"])
    forms = lambda name: tex(name, f"\\text{{{name}}}", f"\\mathrm{{{name}}}") + prose(name)
    return Item([letters, f"\\text{{{letters}}}"], forms(letters), forms(order) + forms(changed))


OPTIONS = "ABCDEFGHIJ"


@of("math", "letters of options", 320)
def math_letters(rng):
    one, other = rng.sample(OPTIONS[:5], 2)
    forms = lambda letter: tex(f"\\text{{({letter})}}", f"\\textbf{{({letter})}}", f"\\text{{{letter}}}", f"({letter})", f"\\mathrm{{({letter})}}") + both(letter) + prose(f"({letter})", f"**{letter}**")
    return Item([f"\\text{{({one})}}", f"\\textbf{{({one})}}", one], forms(one), forms(other), bare=False)


CHOICES = (
    "The answer is {x}.",
    "The answer is ({x}).",
    "The answer is **{x}**.",
    "The correct answer is {x}.",
    "The correct answer is: {x}",
    "The correct answer is option {x}.",
    "Answer: {x}",
    "Answer: ({x})",
    "**Answer: {x}**",
    "**Answer:** {x}",
    "Answer = {x}",
    "Final answer: {x}",
    "The final answer is $\\boxed{{{x}}}$.",
    "$\\boxed{{\\text{{{x}}}}}$",
    "\\boxed{{({x})}}",
    "\\boxed{{\\text{{({x})}}}}",
    "\\boxed{{\\textbf{{({x})}}}}",
    "<answer>{x}</answer>",
    "<answer>({x})</answer>",
    "<answer>Option {x}</answer>",
    "Therefore, option {x} is correct.",
    "Therefore, the correct option is {x}.",
    "The correct choice is {x}.",
    "The correct choice: {x}",
    "The answer should be {x}.",
    "The correct answer would be {x}.",
    "I choose {x}.",
    "So, {x}.",
    "The correct letter is {x}",
    "Option {x}",
    "({x})",
    "{x}",
    "**{x}**",
    "### {x}",
    "So the best option is ({x}).",
    "Hence the answer is ({x}) {thing}.",
    "Answer: {x}. {thing}",
    "Answer: {x}) {thing}",
    "The answer is {x}: {thing}.",
    "\\boxed{{{x}}} ({thing})",
    "\\boxed{{{x}. \\text{{ {thing}}}}}",
    "**Answer: {x}) {thing}**",
    "My choice is {x}.",
)
THINGS = ("mitochondria", "oxygen", "the kinetic energy", "friction", "Paris", "an exothermic reaction", "wave interference", "the mantle", "chlorophyll", "evaporation", "gravity", "two protons")
SCIENCE = (
    "The process needs energy, which rules out the passive ones.",
    "By Newton's second law $F = ma$, so the force is $\\boxed{{F = {a}\\text{{ N}}}}$.",
    "The gap satisfies $\\boxed{{\\langle H\\rangle \\ll \\Delta E}}$.",
    "We know that $E = mc^2$ and that {a} of them are in the cell.",
    "Let me go through the options one after the other.",
    "The energy is $\\boxed{{{a}}}$ joules per mole.",
    "Plants do this in daylight; {a} percent of it happens in the leaves.",
)


def option_list(things, letters):
    return "\n".join(f"{letter}) {thing}" for letter, thing in zip(letters, things))


def eliminate(rng, letters, things):
    """Returns sentences about options in which none is announced as the answer."""
    lines = []
    for letter, thing in rng.sample(list(zip(letters, things)), rng.randint(1, 3)):
        lines.append(rng.choice(("Option {x} ({t}) is the first to look at.", "{x} mentions {t}, which needs a closer look.", "- {x}. {t}: possible at first sight.")).format(x=letter, t=thing))
    return "\n".join(lines)


@of("choice", "choices", 1200)
def choices(rng):
    letters = OPTIONS[: rng.choice((4, 4, 4, 4, 5, 5, 10))]
    things = rng.sample(THINGS, len(letters))
    one, other = rng.sample(letters, 2)

    def text(rng, form):
        letter, thing = form.prose, things[letters.index(form.prose)]
        # "So, I." is no announcement.
        ends = rng.choice([end for end in CHOICES if letter != "I" or end not in ("So, {x}.", "I choose {x}.")]).format(x=letter, thing=thing)
        lead = rng.choice(("", "", eliminate(rng, letters, things), option_list(things, letters), "Let us think step by step.\n" + eliminate(rng, letters, things)))
        return f"{lead}\n\n{ends}" if lead else ends

    return Item([one], prose(one), prose(other), text)


@of("choice", "choices after formula boxes", 480)
def science(rng):
    letters = OPTIONS[:4]
    things = rng.sample(THINGS, 4)
    one, other = rng.sample(letters, 2)

    def text(rng, form):
        letter, thing = form.prose, things[letters.index(form.prose)]
        lines = [line.format(a=rng.randint(2, 90)) for line in rng.sample(SCIENCE, rng.randint(1, 3))]
        lines.append(rng.choice(SCIENCE[1:3] + SCIENCE[5:6]).format(a=rng.randint(2, 90)))
        ends = [end for end in CHOICES if ("nswer" in end or "correct" in end) and "boxed" not in end]
        return "\n".join(lines) + "\n\n" + rng.choice(ends).format(x=letter, thing=thing)

    return Item([one], prose(one), prose(other), text)
