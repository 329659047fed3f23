"""Label selectors as people write them to `kubectl -l`: `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""

from collections.abc import Callable, Mapping

from fettle.model import BadInput

LONGEST = 4000
_Labels = Mapping[str, str]
Selector = Callable[[_Labels | None], bool]
"""Whether an object with these labels is meant."""
_NOT_IN_KEYS = frozenset("=!()<>,")


def read_selector(text: str) -> Selector:
    """All of its terms must hold. "" means every object. Raises BadInput."""
    if len(text) > LONGEST:
        raise BadInput(f"the label selector is longer than {LONGEST} letters")
    terms = [_term(term.strip(), text) for term in _parts(text)] if text.strip() else []
    return lambda labels: all(term(labels or {}) for term in terms)


def _parts(text: str) -> list[str]:
    """What stands between the commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _term(term: str, whole: str) -> Callable[[_Labels], bool]:
    key, sign, value = _split(term)
    if sign in ("in", "notin"):
        inner = value.removeprefix("(").removesuffix(")")
        if inner != value[1:-1] or set(inner) & set("()"):
            raise _wrong(term, whole)
        values = frozenset(each.strip() for each in inner.split(","))
    else:
        values = frozenset((value,))
    if not key or set(key) & _NOT_IN_KEYS or len(key.split()) > 1:
        raise _wrong(term, whole)
    if any(set(each) & _NOT_IN_KEYS or len(each.split()) > 1 for each in values):
        raise _wrong(term, whole)
    match sign:
        case "exists":
            return lambda labels: key in labels
        case "!":
            return lambda labels: key not in labels
        case "!=" | "notin":  # as in Kubernetes, also where there is no such label
            return lambda labels: labels.get(key) not in values
    return lambda labels: labels.get(key) in values


def _split(term: str) -> tuple[str, str, str]:
    """Key, sign and value."""
    if term.startswith("!"):
        return term[1:].strip(), "!", ""
    for sign in ("!=", "==", "="):
        key, found, value = term.partition(sign)
        if found and "(" not in key:
            return key.strip(), sign, value.strip()
    words = term.replace("(", " (", 1).split(maxsplit=2)
    if len(words) == 3 and words[1] in ("in", "notin"):
        return words[0], words[1], words[2]
    return term, "exists", ""


def _wrong(term: str, whole: str) -> BadInput:
    where = f" in {whole[:200]!r}" if term != whole else ""
    return BadInput(
        f"label selector {term[:200]!r}{where}: write terms such as app=train, app!=train, "
        "tier in (a, b), tier notin (a, b), app or !app, with commas between them"
    )
