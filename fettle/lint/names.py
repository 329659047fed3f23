"""Which name an author probably meant, which is none yet, and lists of names for findings.

Only typing errors count: a name that differs by a word or a number means something else, and
suggesting it would do harm.
"""

import re
from collections.abc import Iterable

from fettle.pacing import pause

_LONGEST, _MOST = 128, 200  # the comparison is quadratic in length and linear in candidates
_WORD = re.compile(r"\d+|[A-Z]?[a-z]+|[A-Z]+|[^\W\da-zA-Z_]+")
_NUMBER = re.compile(r"\d+")
_SEPARATORS = re.compile(r"[\s._:/-]+")
_MARKS = frozenset("${}<>@%")
_LONG_WORD = 5
_LETTERS_PER_TYPO = 4
"""A word may have one typing error for this many letters, and two at most."""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The candidate that was probably meant by a name that is none of them; "" if none was.

    >>> nearest("nvidia.com/gpus", ["nvidia.com/gpu", "amd.com/gpu"])
    'nvidia.com/gpu'
    """
    pause()
    if len(name) > _LONGEST:
        return ""
    some = sorted(c for c in set(candidates) if len(c) <= _LONGEST)[:_MOST]
    near = ((typos, c) for c in some if (typos := _typos(name, c)) is not None)
    return min(near, default=(0, ""))[1]


def misspelt(value: str, shown: Iterable[str]) -> str:
    """The shown value that a value can only be a misspelling of; "" if it may be another one.

    Stricter than `nearest`: a value that is not there yet may resemble one that is. The two differ
    only by case and separators, or by a slip inside a word of at least five letters: one letter
    that is missing, doubled or swapped with the next. Another letter makes another word (`south`
    and `north`), and so does one more at an end (`worker` and `workers`).

    >>> misspelt("rack-sotuh", ["rack-south"]), misspelt("rack-north", ["rack-south"])
    ('rack-south', '')
    """
    shown = set(shown)
    if value in shown or not (near := nearest(value, shown)):
        return ""
    if _NUMBER.findall(value) != _NUMBER.findall(near):
        return ""
    if _SEPARATORS.sub("", value).lower() == _SEPARATORS.sub("", near).lower():
        return near
    words, others = _WORD.findall(value), _WORD.findall(near)
    differ = [(a, b) for a, b in zip(words, others, strict=False) if a.lower() != b.lower()]
    slipped = differ and all(_slipped(a.lower(), b.lower()) for a, b in differ)
    return near if slipped and len(words) == len(others) else ""


def _slipped(word: str, meant: str) -> bool:
    """Whether two words differ only by one slip that leaves both ends as they are."""
    shorter, longer = sorted((word, meant), key=len)
    if len(shorter) < _LONG_WORD or shorter[0] != longer[0] or shorter[-1] != longer[-1]:
        return False
    if len(shorter) < len(longer):
        return any(longer[:i] + longer[i + 1 :] == shorter for i in range(1, len(longer) - 1))
    return _distance(word, meant) == 1 and sorted(word) == sorted(meant)


def _typos(name: str, other: str) -> int | None:
    """How many typing errors lead from one name to the other; None if they are different words."""
    words, others = _WORD.findall(name), _WORD.findall(other)
    if "".join(words).lower() == "".join(others).lower():
        return 0 if words else None
    if len(words) != len(others):
        return None
    pairs = [(a, b) for a, b in zip(words, others, strict=True) if a.lower() != b.lower()]
    if len(pairs) != 1:
        return None
    word, meant = pairs[0]
    return (
        None if word.isdigit() or meant.isdigit() else _typos_in_word(word.lower(), meant.lower())
    )


def _typos_in_word(word: str, meant: str) -> int | None:
    shorter = min(len(word), len(meant))
    most = max(1, min(2, shorter // _LETTERS_PER_TYPO))
    if abs(len(word) - len(meant)) > most:
        return None
    # In a short word another letter makes another word: gpu, tpu, npu.
    if shorter < _LETTERS_PER_TYPO and len(word) == len(meant) and sorted(word) != sorted(meant):
        return None
    found = _distance(word, meant)
    return found if found <= most else None


def _distance(word: str, meant: str) -> int:
    """How many letters to add, remove, replace, or swap with the next one."""
    before: list[int] = []
    last = list(range(len(meant) + 1))
    for i, letter in enumerate(word):
        row = [i + 1]
        for j, other in enumerate(meant):
            least = min(last[j + 1] + 1, row[j] + 1, last[j] + (letter != other))
            if i and j and letter == meant[j - 1] and word[i - 1] == other:
                least = min(least, before[j - 1] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]


def is_mark(text: str) -> bool:
    """Whether it stands for what is put in before the API server sees it: `${NAME}`, `NUM_NODES`,
    `FILLED BY THE OPERATOR`, `YOUR-NAME`."""
    shouted = text.replace("_", "").isalnum() or text.replace(" ", "").isalpha()
    return (
        (shouted and text.isupper())
        or text.startswith("YOUR-")
        or "__" in text
        or not _MARKS.isdisjoint(text)
    )


def is_shouted(text: str) -> bool:
    """Whether it is one word in capitals, `TRAIN`: a name, or what stands for one (`NAMESPACE`)."""
    return text.isalnum() and text.isupper()


def listed(names: Iterable[str], most: int = 5) -> str:
    """`a, b, c and 4 more`.

    >>> listed("gfedcba")
    'a, b, c, d, e and 2 more'
    """
    ordered = sorted(names)
    more = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {more} more" if more > 0 else "")
