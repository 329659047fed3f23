"""Random selectors that cost much: whether Kubernetes gives one up for its cost must not surprise.

Long texts, long lists, macros within macros. In form like `expressions.Grammar`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random

_LENGTHS = (1, 3, 10, 60, 300, 1500)
_SIZES = (1, 5, 20, 50, 100, 300, 1000, 3000, 20_000)
_TURNS = (20, 100, 300, 1000, 3000)
_IN_TURN = (
    *("t == t + ''", "t < t", "t.matches('^a')", "t.contains('b')", "[t, t].max() == ''"),
    *("[l, l, l].indexOf([3]) == 1", "l == l", "[l] == [l]", "optional.of(t) == optional.of(t)"),
    *("format.uri().validate(t).hasValue()", "bytes(t) == b''", "size(t.split('')) == 1"),
    *("format.dns1123Label().validate(t).hasValue()", "t.substring(1) == ''", "l.isSorted()"),
    *("i in l", "l.sum() < 0", "[t, t].isSorted()", "[t, t].distinct().size() == 2"),
    *("string(bytes(t)) == 'x'", "t.startsWith(t)", "isURL(t)", "isIP(t)", "isQuantity(t)"),
    *("isSemver(t)", "t.find('b+') == ''", "t.charAt(1) == 'z'", "{t: 1} == {t: 2}"),
    *("'%s'.format([l]) == ''", "'%d %s'.format([i, t]) == ''", "[l, l].flatten().size() == 0"),
    *("l.slice(0, 1) == []", "dyn(l) == dyn(t)", "t.lastIndexOf('zz') == 3", "l.reverse() == []"),
    *("strings.quote(t) == ''", "l.sortBy(e, -e) == []", "sets.contains(l, l)"),
)
"""What may be done again and again with a text `t`, a list `l` and a number `i`."""


class Costly:
    """Makes expressions; `used` counts the forms they were made of."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()

    def expression(self, random: Random) -> str:
        return self._bool(random, random.choice((1, 2, 3)))

    def _text(self, random: Random, depth: int) -> str:
        forms: tuple[Callable[[], str], ...] = (
            lambda: _bound(self._text(random, depth - 1), "+", random.choice((2, 4, 8, 16))),
            lambda: f"{self._text(random, depth - 1)}.replace('a', '{'b' * random.randrange(50)}')",
            lambda: f"{self._list(random, depth - 1)}.map(v, {self._text(random, 0)}).join(',')",
            lambda: f"{self._text(random, depth - 1)}.lowerAscii()",
            lambda: f"'%s%s'.format([{self._text(random, depth - 1)}, {self._text(random, 0)}])",
            lambda: f"strings.quote({self._text(random, depth - 1)})",
        )
        if depth <= 0 or random.random() < 0.3:
            return json.dumps("".join(random.choices("ab1.", k=random.choice(_LENGTHS))))
        return random.choice(forms)()

    def _list(self, random: Random, depth: int) -> str:
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"{self._list(random, depth - 1)}.map(m, {self._number(random, depth - 1)})",
            lambda: f"{self._list(random, depth - 1)}.{random.choice(('distinct', 'sort'))}()",
            lambda: f"({self._list(random, depth - 1)} + {self._list(random, depth - 1)})",
            lambda: f"{_bound(self._list(random, depth - 1), ',', 4)}.flatten()",
            lambda: f"{self._list(random, depth - 1)}.filter(f, {self._bool(random, depth - 1)})",
        )
        if depth <= 0 or random.random() < 0.4:
            return f"lists.range({random.choice(_SIZES)})"
        return random.choice(forms)()

    def _number(self, random: Random, depth: int) -> str:
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"size({self._list(random, depth - 1)})",
            lambda: f"{self._list(random, depth - 1)}.sum()",
            lambda: f"{self._text(random, depth - 1)}.indexOf('ab1')",
            lambda: f"size({self._text(random, depth - 1)})",
        )
        return str(random.randrange(100)) if depth <= 0 else random.choice(forms)()

    def _bool(self, random: Random, depth: int) -> str:
        forms: tuple[Callable[[], str], ...] = (
            lambda: self._turns(random, depth),
            lambda: self._turns(random, depth),
            lambda: self._turns(random, depth),
            lambda: f"{self._text(random, depth - 1)}.matches('{'(a|b)+' * random.randrange(99)}')",
            lambda: f"{self._text(random, depth - 1)}.contains({self._text(random, depth - 1)})",
            lambda: f"({self._text(random, depth - 1)} < {self._text(random, depth - 1)})",
            lambda: f"({self._list(random, depth - 1)} == {self._list(random, depth - 1)})",
            lambda: f"({self._bool(random, depth - 1)} || {self._bool(random, depth - 1)})",
            lambda: (
                f"sets.{random.choice(('contains', 'intersects', 'equivalent'))}"
                f"({self._list(random, depth - 1)}, {self._list(random, depth - 1)})"
            ),
        )
        return random.choice(("true", "false")) if depth <= 0 else random.choice(forms)()

    def _turns(self, random: Random, depth: int) -> str:
        again = random.choice(_IN_TURN)
        macro = random.choice(("all", "exists", "exists_one"))
        self.used[again] += 1
        if random.random() < 0.5:
            again = f"!({again})"
        body = f"lists.range({random.choice(_TURNS)}).{macro}(i, {again})"
        text, items = self._text(random, depth - 1), self._list(random, depth - 1)
        return f"cel.bind(t, {text}, cel.bind(l, {items}, {body}))"


def _bound(made: str, between: str, times: int) -> str:
    """A value many times over, evaluated once."""
    many = f" {between} ".join("s" * times)
    return f"cel.bind(s, {made}, {f'[{many}]' if between == ',' else many})"
