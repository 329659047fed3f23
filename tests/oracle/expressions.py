"""Random selectors by a typed grammar; some are spoilt on purpose, most compile."""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

from tests.oracle.grammar import LITERALS, TEMPLATES, WORDS

Json = dict[str, Any]

SPOILT = 0.12
"""How often an expression gets one part of a wrong type."""
BROKEN = 0.02
"""How often a character of it is lost."""
BARE = 0.15
"""How often a part goes without brackets, so that precedence decides."""
ODD_VALUES: tuple[Json, ...] = (
    *({"string": "é"}, {"string": ""}, {"string": "1.2.3"}, {"int": 2**63 - 1}, {"int": -(2**63)}),
    *({"version": "18446744073709551615.0.0"}, {"version": "1.2.3-a.b"}, {"bool": True}),
    *({"strings": ["é", "", "x,y"]}, {"ints": [0, -1, 2**63 - 1]}, {"string": "3"}),
)
ODD_SIZES = ("0", "1n", "9223372036854775807", "1e18", "0.5", "100u", "-1", "12E", "1.5Gi")
_HOLE = re.compile(r"\{([a-z_]+)\}")


class Grammar:
    """Makes expressions; `used` counts the templates they were made of."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()

    def expression(self, random: Random) -> str:
        depth = random.choices((1, 2, 3, 4), (2, 4, 3, 1))[0]
        wrong = [random.random() < SPOILT]
        made = self._value(random, "bool", depth, wrong, root=True)
        if random.random() < BROKEN:
            at = random.randrange(len(made))
            made = made[:at] + made[at + 1 :]
        return made

    def _value(
        self, random: Random, kind: str, depth: int, wrong: list[bool], *, root: bool = False
    ) -> str:
        if wrong[0] and not root and random.random() < 0.3:
            wrong[0] = False
            kind = random.choice(list(LITERALS))
        if kind in WORDS:
            return self._filled(random, random.choice(WORDS[kind]), 0, wrong)
        if depth == 0 or not TEMPLATES[kind] or (not root and random.random() < 0.25):
            return random.choice(LITERALS[kind])
        template = random.choice(TEMPLATES[kind])
        self.used[template] += 1
        made = self._filled(random, template, depth - 1, wrong)
        return made if root or random.random() < BARE else f"({made})"

    def _filled(self, random: Random, template: str, depth: int, wrong: list[bool]) -> str:
        escaped = template.replace("{{", "\0").replace("}}", "\1")
        made = _HOLE.sub(lambda hole: self._value(random, hole[1], depth, wrong), escaped)
        return made.replace("\0", "{").replace("\1", "}")


def device(random: Random) -> Json:
    """A device that has most of what the grammar looks up, each of varying type."""
    attributes: Json = {
        "model": {"string": random.choice(("A100", "H100", "a"))},
        "index": {"int": random.choice((0, 1, 3, 7, -1))},
        "uuid": {"string": "GPU-1"},
        "mig": {"bool": random.random() < 0.5},
        "driverVersion": {
            "version": random.choice(("550.54.15", "1.2.3", "2.0.0-rc.1", "1.2.3+b5"))
        },
        "example.com/numa": {"int": random.choice((0, 1))},
    }
    if random.random() < 0.4:
        versions = random.sample(("1.0.0", "1.10.0", "1.0.0+b", "2.0.0-rc.1"), random.randint(1, 3))
        attributes["versions"] = {"versions": versions}
        attributes["flags"] = {"bools": [random.random() < 0.5]}
    if random.random() < 0.4:
        attributes["links"] = {"ints": [3, 1, 2]}
        attributes["tags"] = {"strings": ["fast", "a"]}
    for name in list(attributes):
        if random.random() < 0.1:
            del attributes[name]
        elif random.random() < 0.05:
            attributes[name] = random.choice(ODD_VALUES)
    capacity: Json = {
        "memory": {"value": random.choice(("40Gi", "1Gi", "1500m", "80e9", *ODD_SIZES))},
        "share": {"value": "500m"},
        "example.com/slots": {"value": "4"},
    }
    made: Json = {"driver": "gpu.example.com", "attributes": attributes, "capacity": capacity}
    if random.random() < 0.3:
        made["allowMultipleAllocations"] = random.random() < 0.5
    return made


def smaller(expression: str) -> list[str]:
    """Expressions with one bracketed part put in place of what is around it, or made a literal."""
    parts = _bracketed(expression)
    made = [part for part in parts if part != expression]
    for part in parts:
        inner = _bracketed(part[1:-1]) if part.startswith("(") else []
        made += [expression.replace(part, each, 1) for each in inner if each != part]
        made += [expression.replace(part, word, 1) for word in _PLAIN if word != part]
    return sorted({m for m in made if len(m) < len(expression)}, key=len)


_PLAIN = ("true", "false", "0", "1", '""', '"a"', "[1]", '["a"]')


def _bracketed(expression: str) -> list[str]:
    """Everything in round brackets, brackets included."""
    opened: list[int] = []
    found = []
    for at, character in enumerate(expression):
        if character == "(":
            opened.append(at)
        elif character == ")" and opened:
            found.append(expression[opened.pop() : at + 1])
    return found
