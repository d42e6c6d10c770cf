"""Texts around an answer, as models write them: reasoning, then the answer in a frame.

An answer is a `Form`: its LaTeX (for boxes and between dollar signs), its prose (without dollar
signs), or both. A form without prose is set between dollar signs wherever prose is wanted.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Form:
    """A spelling of an answer."""

    tex: str | None = None
    prose: str | None = None

    def inline(self):
        """Returns the spelling inside a sentence."""
        return self.prose if self.tex is None else f"${self.tex}$"


def tex(*spellings):
    """Returns forms that stand in boxes and between dollar signs."""
    return [Form(tex=one) for one in spellings]


def prose(*spellings):
    """Returns forms that stand in sentences only."""
    return [Form(prose=one) for one in spellings]


def both(*spellings):
    """Returns forms that stand anywhere as they are."""
    return [Form(one, one) for one in spellings]


LINES = (
    "First we set up the problem and look at the {a} given quantities.",
    "We have ${a} + {b} = {sum}$.",
    "Multiplying, ${a} \\cdot {b} = {product}$.",
    "Step {s}: subtract {a} from {big}, which leaves {left}.",
    "Let $x$ be the unknown; there are {a} cases and {b} of them can be excluded.",
    "\\[ {a}t + {b} = {big} \\]",
    "This uses the fact that ${a} < {big}$.",
    "### Step {s}: simplify",
    "1. Start from {a}.\n2. Add {b} to reach {sum}.",
    "Note that $\\frac{{{a}}}{{{big}}}$ is less than 1.",
    "Since $f({s}) = {b}$, the function is not constant.",
    "Substituting $t = {a}$ gives $t^2 = {square}$.",
    "We checked {b} values by hand.",
    "In the year {year} this was a known exercise.",
)


def reasoning(rng):
    """Returns one to four lines with numbers and formulas that are no answer."""
    lines = []
    for _ in range(rng.randint(1, 4)):
        a, b, left = rng.randint(2, 40), rng.randint(2, 40), rng.randint(2, 40)
        lines.append(
            rng.choice(LINES).format(
                a=a, b=b, s=rng.randint(1, 9), sum=a + b, product=a * b, square=a * a, big=a + left, left=left, year=rng.randint(1901, 2024)
            )
        )
    return "\n".join(lines)


BOXES = (
    "{r}\n\nTherefore, the final answer is $\\boxed{{{x}}}$.",
    "{r} Hence we get $\\boxed{{{x}}}$.",
    "{r}\n\n\\[\n\\boxed{{{x}}}\n\\]",
    "{r}\n\n**Final Answer**\n\\boxed{{{x}}}",
    "{r}\n\nThus the answer is:\n$$\\boxed{{{x}}}$$",
    "{r}\n\nAnswer: $\\boxed{{{x}}}$",
    "\\boxed{{{x}}}",
    "<think>\n{r}\n</think>\n\nThe result is \\(\\boxed{{{x}}}\\).",
    "<answer>$\\boxed{{{x}}}$</answer>",
)
SENTENCES = (
    "{r}\n\nThe answer is {x}.",
    "{r}\n\nAnswer: {x}",
    "{r}\n\n**Answer:** {x}",
    "{r}\nFinal Answer: The final answer is {x}. I hope it is correct.",
    "{r}\n\nTherefore, the final answer is: {x}",
    "<think>\n{r}\n</think>\n<answer>{x}</answer>",
    "{r}\n\n<answer> {x} </answer>",
    "The answer is {x}.",
)
BARE = ("{r}\n\n{x}", "{x}")


def frame(rng, form, bare=True):
    """Returns a text that gives the form as its answer; half of them are boxes."""
    r = reasoning(rng)
    if form.tex is not None and (form.prose is None or rng.random() < 0.6):
        kind = rng.random()
        if kind < 0.6:
            return rng.choice(BOXES).format(r=r, x=form.tex)
        if bare and kind > 0.92:
            return rng.choice(BARE).format(r=r, x=rng.choice(("${}$", "$${}$$", "\\[ {} \\]")).format(form.tex))
        return rng.choice(SENTENCES).format(r=r, x=rng.choice(("${}$", "\\({}\\)")).format(form.tex))
    if bare and rng.random() < 0.12:
        return rng.choice(BARE).format(r=r, x=form.inline())
    return rng.choice(SENTENCES).format(r=r, x=form.inline())
