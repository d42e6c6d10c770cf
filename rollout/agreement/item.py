"""One problem of the bench, the register of its classes, and near misses of numbers."""
import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Item:
    """A label in its spellings, with forms of the same value and forms of other values."""

    labels: list
    right: list
    wrong: list
    # Makes the text of a form; None stands for `frames.frame`.
    texts: Callable | None = None
    # No last line without an announcement: the form could be read as part of the reasoning.
    bare: bool = True


CLASSES = []


def of(kind, name, count=480):
    """Registers a function from a random generator to an item as a class of pairs."""
    return lambda make: CLASSES.append((kind, name, count, make)) or make


def other_whole(rng, n):
    """Returns a whole number that differs by a digit, an order of digits, a dropped digit or a sign."""
    digits = str(abs(n))
    sign = -1 if n < 0 else 1
    ways = [n + 1, n - 1, n + 10, n - 10]
    at = rng.randrange(len(digits))
    ways.append(sign * int(digits[:at] + str((int(digits[at]) + rng.randint(1, 9)) % 10) + digits[at + 1 :]))
    if len(digits) > 1:
        ways.append(sign * int(digits[:at] + digits[at + 1 :]))
        ways.append(sign * int(digits[::-1]))
        ways.append(n * 10)
    if n:
        ways.append(-n)
    return rng.choice([one for one in ways if one != n])


def grouped(n, comma):
    """Returns the number with a separator after every three digits."""
    return f"{n:,}".replace(",", comma)


def signed(n):
    """Returns the number with its sign in front, to be added to a sum."""
    return f"+{n}" if n >= 0 else str(n)


def term(factor, rest):
    """Returns a product of a factor other than 0 and a symbol; a factor of one is not written."""
    return {1: rest, -1: "-" + rest}.get(factor, f"{factor}{rest}")
