"""What can be no PromQL, as far as that shows without Prometheus. Whatever it lets pass, Prometheus
may still refuse. Pure text.
"""

import re

from fettle.health.signals.promql import ASIDE, STRINGS, WORDS

_COMMENT = re.compile(rf"{STRINGS.pattern}|(#.*)")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_HOLES = ("device", "peers")
_OPERATOR = r"(?:==|!=|>=|<=|[-+*/%^><]|\b(?:and|or|unless|atan2)\b)"
_BINARY_ONLY = r"(?:==|!=|>=|<=|[*/%^><]|\b(?:and|or|unless|atan2)\b)"
_ODD = (
    (rf"(?:^|[(,])\s*({_BINARY_ONLY})", "nothing stands before {}"),
    (rf"({_OPERATOR}|,)\s*(?:$|[),])", "nothing stands after {}"),
    (r"\b(by|without|on|ignoring|offset|bool)$", "nothing stands after {}"),
    (r"((?<![=!<>])=(?!=)|!(?!=)|[^\w\s:.(),+\-*/%^<>=!])", "{} is no operator"),
    (rf"({_OPERATOR}\s*{_BINARY_ONLY})", "{} are two operators"),
)
_TIME = r"\d+(?:\.\d+)?(?:ms|[smhdwy])?"
_RANGE = re.compile(rf"\s*(?:{_TIME})+\s*(?::\s*(?:{_TIME})*\s*)?")
_MATCHERS = re.compile(r'(?:\s*(?:(?:[\w.:]+|"")\s*(?:=~|!~|!=|=)\s*""|"")\s*(?:,|$))*\s*')
_TAKE_NOTHING = re.compile(
    r"\b(?:time|pi|hour|minute|month|year|start|end|day_of_month|day_of_week|day_of_year"
    r"|days_in_month)\s*\(\s*\)"
)
_WORD = r"[A-Za-z_:][\w:.]*|\d[\w.]*"
_SELECTOR = re.compile(r"([A-Za-z_:][\w:.]*)?\s*\{[^{}]*\}")
_ADJACENT = re.compile(rf"((?<![\w:.$])(?:{_WORD})|\))\s+(?=({_WORD}))")


def complaint(query: str) -> str:
    """Why this can be no query, as far as that shows without Prometheus; "" if it may be one."""
    query = _COMMENT.sub(lambda found: "" if found[1] else found[0], query)
    plain = STRINGS.sub("", query)
    opened: list[str] = []
    for sign in plain:
        if sign in _PAIRS.values():
            opened.append(sign)
        elif sign in _PAIRS and (not opened or opened.pop() != _PAIRS[sign]):
            return f"there is a {sign} too many"
    if opened:
        return f"{opened[-1]} is not closed"
    if any(quote in plain for quote in "\"'`"):
        return "a string is not closed"
    for hole in re.findall(r"\$(\w*)", plain):
        if hole not in _HOLES:
            return f"${hole} stands for nothing; $device and $peers are known"
    return _odd_part(query)


def _odd_part(query: str) -> str:
    shaped = STRINGS.sub('""', query)
    for held in re.findall(r"\{([^{}]*)\}", shaped):
        if not _MATCHERS.fullmatch(held):
            return '{} must hold matchers of labels, such as {job="dcgm"}'
    for held in re.findall(r"\[([^\[\]]*)\]", shaped):
        if not _RANGE.fullmatch(held):
            return f"[{held}] is no range, such as [5m]"
    plain = _SELECTOR.sub(_selected, _TAKE_NOTHING.sub(" 1", shaped.replace('""', "1")))
    while (less := ASIDE.sub(" ", plain.replace("$", ""))) != plain:
        plain = less
    plain = plain.strip()
    if not plain:
        return "must not be empty"
    if re.search(r"\(\s*\)", plain):
        return "() holds nothing"
    for odd, why in _ODD:
        if (found := re.search(odd, plain)) is not None:
            return why.format(found[1])
    for before, after in _ADJACENT.findall(plain):
        if not WORDS.intersection((before.lower(), after.lower())):
            return f"an operator is missing between {before} and {after}"
    return ""


def _selected(selector: re.Match[str]) -> str:
    """Its name, or another one if it has none."""
    named = selector[1] and selector[1].lower() not in WORDS
    return f"{selector[1]} " if named else f"{selector[1] or ''} _ "
