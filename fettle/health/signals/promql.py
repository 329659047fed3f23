"""PromQL of the rules, put together from a row and its exporter's. Pure text, nothing is evaluated.

`$device` in a query stands for the labels by which the exporter names a device, `$peers` for those
that devices of one kind have in common. A metric that has had several names is written by one of
them; each query is asked for all.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product

PEERS_AT_LEAST = 5
"""Among fewer, one or two that are odd move the median to themselves."""
LEAST_EFFECT = 0.1
"""A device that differs less than this from the median of its peers is like them."""
LEAST_Z = 3.5
"""The bound of Iglewicz and Hoaglin for a modified z-score: 0.6745 times the distance from the
median, by the median absolute deviation."""
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"' r"|'(?:[^'\\]|\\.)*'" r"|`[^`]*`")
_BESIDE = (
    r"\[[^\[\]]*\]|(?i:\b(?:by|without|on|ignoring|group_left|group_right))\s*\([^()]*\)"
    r"|(?:(?i:\boffset)|@)\s*-?[\w.]+"
)
ASIDE = re.compile(rf"\{{[^{{}}]*\}}|{_BESIDE}")
_IDENTIFIER = re.compile(r"(?<![\w:$.])([A-Za-z_:][\w:]*)(?!\s*\()(?![\w:])")
WORDS = frozenset(
    ("and", "or", "unless", "bool", "by", "without", "on", "ignoring", "group_left", "group_right")
) | {"offset", "inf", "nan", "atan2"}
AGO = ("1h", "2h", "4h", "8h", "16h", "1d")
"""How far back `$ago` looks."""
_SELECTOR = re.compile(
    r"(?P<brace>\{)[^{}]*\}|(?<![\w:$.])(?P<name>[A-Za-z_:][\w:]*)(?!\s*[({])(?![\w:])"
)
"""The braces of a selector, or a name without any."""
_CLAUSE = re.compile(r"(?i:\b(by|without|on|ignoring))\s*\(([^()]*)\)")
_AGGREGATORS_NAMES = """
    avg bottomk count count_values group limit_ratio limitk max min quantile stddev stdvar sum
    topk
"""
AGGREGATORS = frozenset(_AGGREGATORS_NAMES.split())
_FUNCTIONS_NAMES = """
    abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes
    clamp clamp_max clamp_min cos cosh count_over_time day_of_month day_of_week day_of_year
    days_in_month deg delta deriv double_exponential_smoothing end exp first_over_time floor
    histogram_avg histogram_count histogram_fraction histogram_quantile histogram_quantiles
    histogram_stddev histogram_stdvar histogram_sum holt_winters hour idelta increase info
    integral irate label_join label_replace last_over_time ln log10 log2 mad_over_time
    max_over_time min_over_time minute month pi predict_linear present_over_time
    quantile_over_time rad range rate resets round scalar sgn sin sinh sort sort_by_label
    sort_by_label_desc sort_desc sqrt start stddev_over_time stdvar_over_time step sum_over_time
    tan tanh time timestamp ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time
    ts_of_min_over_time vector year
"""
FUNCTIONS = frozenset(_FUNCTIONS_NAMES.split())
_CALL = re.compile(r"([A-Za-z_:][\w:]*)\s*(?=\(|(?i:by|without)\b)")


def with_labels(query: str, labels: Mapping[str, Iterable[str]]) -> str:
    """`$device` and the like replaced by lists of labels.

    >>> with_labels("sum by ($device) (x)", {"device": ["Hostname", "UUID"]})
    'sum by (Hostname, UUID) (x)'
    """
    for name, listed in labels.items():
        query = re.sub(rf"\${name}\b", ", ".join(dict.fromkeys(listed)), query)
    return query


def metric_names(query: str) -> frozenset[str]:
    """The names of metrics in a query, as far as they are written as such."""
    plain = STRINGS.sub(" ", query)
    while (less := ASIDE.sub(" ", plain)) != plain:
        plain = less
    return frozenset(n for n in _IDENTIFIER.findall(plain) if n.lower() not in WORDS)


def is_recorded(query: str) -> bool:
    """Whether it asks for what another query made: a recording rule, whose names have colons, or
    alerts."""
    return any(":" in name or name.startswith("ALERTS") for name in metric_names(query))


def calls(plain: str) -> list[str]:
    """The functions and aggregations in a query without strings, in small letters."""
    found = (name.lower() for name in _CALL.findall(plain))
    return [name for name in found if name not in WORDS]


def keeps(query: str, labels: Iterable[str]) -> bool:
    """Whether series with other values of these labels stay apart throughout the query, as far as
    that can be told. Then the labels of a result say where all of it is from.

    >>> keeps("sum by (UUID) (rate(x[5m]))", ["UUID"]), keeps("sum(x)", ["UUID"])
    (True, False)
    """
    wanted = set(labels)
    if "label_" in query and any(f'"{label}"' in query for label in wanted):
        return False  # label_replace and label_join may write them
    plain = STRINGS.sub('""', query)
    called = calls(plain)
    if not AGGREGATORS.union(FUNCTIONS).issuperset(called):
        return False
    groups, merged = 0, AGGREGATORS | {"absent", "absent_over_time", "scalar"}
    for word, listed in _CLAUSE.findall(plain):
        named = {label.strip() for label in listed.split(",")}
        groups += word.lower() in ("by", "without")
        if word.lower() in ("by", "on"):
            if not wanted <= named:
                return False
        elif wanted & named:
            return False
    return groups == sum(name in merged for name in called)


def narrowed(query: str, labels: Iterable[str], patterns: Iterable[str]) -> str:
    """The query as if there were only series whose labels are absent, or match a pattern (with `*`
    and `?`).

    >>> narrowed("x > 1", ["namespace"], ["ml*"])
    'x{namespace=~"|ml.*"} > 1'
    """
    values = json.dumps("|".join(("", *map(_regex, patterns))))
    matchers = ", ".join(f"{label}=~{values}" for label in labels)
    plain = STRINGS.sub(lambda found: "." * len(found[0]), query)
    plain = re.sub(_BESIDE, lambda found: " " * len(found[0]), plain)
    parts, at = [], 0
    for found in _SELECTOR.finditer(plain):
        if found["brace"]:
            end, inserted = found.start() + 1, f"{matchers}, "
            inserted = inserted if plain[end : found.end() - 1].strip() else matchers
        elif found["name"].lower() in WORDS:
            continue
        else:
            end, inserted = found.end(), f"{{{matchers}}}"
        parts += [query[at:end], inserted]
        at = end
    return "".join((*parts, query[at:]))


def _regex(pattern: str) -> str:
    signs = {"*": ".*", "?": "."}
    return "".join(signs.get(sign) or re.escape(sign) for sign in pattern)


def some_time_ago(query: str, once: str = "") -> str:
    """The query for each time that `$ago` stands for, and one that is asked once, as one query."""
    each = (query.replace("$ago", ago) for ago in AGO)
    return " or ".join(f"({one})" for one in (*each, once) if one)


def for_all_names(query: str, aliases: Mapping[str, Iterable[str]]) -> str:
    """The query for each name that its metrics have had, as one query.

    >>> for_all_names("x > 1", {"x": ["old_x"]})
    '(x > 1) or (old_x > 1)'
    """
    used = sorted(metric_names(query) & aliases.keys())
    if not used:
        return query
    wanted = re.compile(rf"(?<![\w:$])(?:{'|'.join(map(re.escape, used))})(?![\w:])")
    variants = []
    for names in product(*((name, *aliases[name]) for name in used)):
        chosen = dict(zip(used, names, strict=True))
        variants.append(f"({wanted.sub(partial(_chosen, chosen), query)})")
    return " or ".join(variants)


def _chosen(names: Mapping[str, str], found: re.Match[str]) -> str:
    return names[found[0]]


def apart_from_peers(query: str, peers: str, *, above: bool, least: float = 0.0) -> str:
    """Those of the query's series that are far above or below their peers, which have the labels
    `peers` in common; by what share of the peers' median.

    Far is both: more than 10 % (of the larger of the two), and 3.5 times as far as series usually
    are, by the median absolute deviation. With fewer than five peers nothing is.
    """
    # Prometheus evaluates each mention of the query anew, so there are as few as possible.
    one = f"({query})"
    ratio = f"{one} / on ({peers}) group_left () quantile by ({peers}) (0.5, {one})"
    apart = f"({ratio} - 1)" if above else f"(1 - {ratio})"
    effect = 1 / (1 - LEAST_EFFECT) - 1 if above else LEAST_EFFECT
    usual = f"{LEAST_Z / 0.6745:.4f} * quantile by ({peers}) (0.5, abs({apart}))"
    far = f"{apart} > on ({peers}) group_left () clamp_min({usual}, {effect:.4f})"
    enough = f"on ({peers}) (count by ({peers}) {one} >= {PEERS_AT_LEAST})"
    found = f"({far}) and {enough}"
    return f"{found} and ({one} > {least})" if least else found


def gone(names: Iterable[str], device: str, identity: str) -> str:
    """The devices that had a series of one of these names within a day, and have none now."""
    series = f'{{__name__=~"{"|".join(names)}"}}'
    before = " or ".join(
        f"group by ({device}) ({series} offset {ago})" for ago in ("10m", "1h", "3h", "12h", "1d")
    )
    return f"({before}) unless on ({identity}) group by ({identity}) ({series})"


def of_devices(
    groups: Iterable[Iterable[str]], device: str, label: str, values: Iterable[str]
) -> str:
    """The devices that have a series of each of these groups of names, of those that have one of
    these values of a label (of all without a label).

    >>> of_devices([["a", "b"]], "UUID", "modelName", ["H100"])
    'group by (UUID) ({__name__=~"a|b", modelName=~"H100"})'
    """
    only = ""
    if label:
        only = f", {label}=~{json.dumps('|'.join(map(re.escape, sorted(values))))}"
    found = (f'group by ({device}) ({{__name__=~"{"|".join(sorted(g))}"{only}}})' for g in groups)
    return " and ".join(found)


def presence(names: Iterable[str]) -> str:
    """How many series each of these metrics has."""
    listed = "|".join(sorted(names))
    return f'count by (__name__) ({{__name__=~"{listed}"}})'
