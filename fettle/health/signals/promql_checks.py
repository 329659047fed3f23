"""What can be no PromQL, and which labels the series have that a query gives, as far as that shows
without Prometheus. In doubt a query is sound, and a label is there.

Imported only where queries are checked, since the parser takes 3 MB.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import promql_parser as parser

from fettle.health.signals.promql import AGGREGATORS, FUNCTIONS, STRINGS, calls

_LONGEST = 2000
"""The parser's time grows with the square of the nesting, and some 8,000 nested operators crash it:
what is longer is not looked at."""
_HOLE = re.compile(r"\$(?:device|peers)\b")
_ANY_HOLE = re.compile(r"\$\w*")
_UNKNOWN_FUNCTION = re.compile(r"unknown function with name '(.*)'")
_COMPARE = frozenset(("==", "!=", ">", "<", ">=", "<="))
_PICKERS = frozenset(("topk", "bottomk", "limitk", "limit_ratio"))
"""Aggregations that give some of their series as they are."""
_WRITERS = frozenset(
    ("label_replace", "label_join", "absent", "absent_over_time", "info", "vector")
)
_METRICSQL = """
    aggr_over_time any ascent_over_time bitmap_and bitmap_or bitmap_xor bottomk_avg bottomk_last
    bottomk_max bottomk_median bottomk_min buckets_limit changes_prometheus count_eq_over_time
    count_gt_over_time count_le_over_time count_ne_over_time decreases_over_time default_rollup
    delta_prometheus deriv_fast descent_over_time distinct distinct_over_time drop_common_labels
    drop_empty_series duration_over_time geomean geomean_over_time histogram histogram_over_time
    histogram_share hoeffding_bound_lower hoeffding_bound_upper ideriv increase_prometheus
    increase_pure increases_over_time integrate interpolate keep_last_value keep_next_value
    label_copy label_del label_graphite_group label_keep label_lowercase label_map label_match
    label_mismatch label_move label_set label_transform label_uppercase label_value label_values
    labels_equal lag lifetime limit_offset mad median median_over_time mode mode_over_time now
    outlier_iqr_over_time outliers_iqr outliers_mad outliersk prometheus_buckets quantiles
    quantiles_over_time rand rand_exponential rand_normal range_avg range_first range_last
    range_linear_regression range_mad range_max range_median range_min range_normalize
    range_over_time range_quantile range_stddev range_stdvar range_sum range_trim_outliers
    range_trim_spikes range_trim_zscore range_zscore rate_over_sum rate_prometheus remove_resets
    rollup rollup_candlestick rollup_delta rollup_deriv rollup_increase rollup_rate
    rollup_scrape_interval running_avg running_max running_min running_sum ru scrape_interval
    share share_eq_over_time share_gt_over_time share_le_over_time smooth_exponential
    sort_by_label_numeric sort_by_label_numeric_desc stale_samples_over_time sum2 sum2_over_time
    sum_eq_over_time sum_gt_over_time sum_le_over_time tfirst_over_time timestamp_with_name
    timezone_offset tlast_change_over_time tlast_over_time tmax_over_time tmin_over_time
    topk_avg topk_last topk_max topk_median topk_min ttf union utilization zscore
    zscore_over_time
"""
_ELSEWHERE = frozenset(_METRICSQL.split()) | {"holt_winters"}
"""What MetricsQL has besides, and what Prometheus had before version 3."""


def complaint(query: str) -> str:
    """Why this can be no query, as far as that shows without Prometheus; "" if it may be one."""
    try:
        _parsed(query)
    except ValueError as error:
        return _in_words(str(error), query)
    return ""


def has_threshold(query: str) -> bool:
    """Whether it leaves any series out by its value, or by others."""
    parsed = _parsed(query)
    return parsed is None or any(map(_leaves_out, _parts(parsed)))


def can_have(query: str, labels: Iterable[str]) -> frozenset[str]:
    """Those of the labels that a series which the query gives can have."""
    asked = frozenset(labels)
    try:
        parsed = _parsed(query)
        return frozenset(label for label in asked if parsed is None or _keeps(parsed, label))
    except (ValueError, RecursionError):
        return asked


def _parsed(query: str) -> parser.Expr | None:
    """None if it is of another dialect, or too long to tell; ValueError if it is no query."""
    if len(query) > _LONGEST or not _ELSEWHERE.isdisjoint(calls(STRINGS.sub("", query))):
        return None
    return parser.parse(_HOLE.sub("label, other", query))  # either stands for a list


def _in_words(error: str, query: str) -> str:
    if "unexpected character: '$'" in error and (hole := _ANY_HOLE.search(STRINGS.sub("", query))):
        return f"{hole[0]} stands for nothing; $device and $peers are known"
    if (unknown := _UNKNOWN_FUNCTION.search(error)) is not None:
        near = get_close_matches(unknown[1].lower(), AGGREGATORS | FUNCTIONS, 1)
        return f"there is no function {unknown[1]}" + (f"; write {near[0]}" if near else "")
    if error == "invalid promql query":
        return "it is no PromQL; the page of Prometheus on which you ask shows where"
    return f"it is no PromQL: {error}"


def _parts(whole: Any) -> Iterator[Any]:
    """The parser's own `walk` takes a hundred times as long where 400 are nested."""
    left = [whole]
    while left:
        yield (part := left.pop())
        left += (getattr(part, name) for name in ("expr", "lhs", "rhs") if hasattr(part, name))
        left += getattr(part, "args", ())


def _leaves_out(part: parser.Expr) -> bool:
    if isinstance(part, parser.BinaryExpr):
        is_bool = part.modifier is not None and part.modifier.return_bool
        return str(part.op) == "unless" or (str(part.op) in _COMPARE and not is_bool)
    return isinstance(part, parser.Call) and part.func.name.startswith("absent")


def _keeps(part: Any, label: str) -> bool:
    while isinstance(part, parser.ParenExpr | parser.UnaryExpr | parser.SubqueryExpr):
        part = part.expr
    if isinstance(part, parser.BinaryExpr):
        return _operator_keeps(part, label)
    if isinstance(part, parser.AggregateExpr):
        return _groups_by(part, label) and _keeps(part.expr, label)
    if isinstance(part, parser.Call) and part.func.name not in _WRITERS:
        typed = zip(part.args, part.func.arg_types, strict=False)
        return all(_keeps(arg, label) for arg, kind in typed if kind in _SERIES)
    return True


_SERIES = (parser.ValueType.Vector, parser.ValueType.Matrix)


def _groups_by(part: parser.AggregateExpr, label: str) -> bool:
    if str(part.op) in _PICKERS:
        return True
    by = part.modifier
    return by is not None and (label in by.labels) is (by.type == parser.AggModifierType.By)


def _operator_keeps(part: parser.BinaryExpr, label: str) -> bool:
    """By the side of which there is a series for each one of the result, and what is matched."""
    if str(part.op) == "or":
        return _keeps(part.lhs, label) and _keeps(part.rhs, label)
    sides = [side for side in (part.lhs, part.rhs) if not _is_scalar(side)]
    how = part.modifier
    if len(sides) < 2 or how is None or str(part.op) in ("and", "unless"):
        return all(_keeps(side, label) for side in sides[:1])
    if how.card != parser.VectorMatchCardinality.OneToOne:
        many = how.card == parser.VectorMatchCardinality.ManyToOne
        return label in (how.group_labels or ()) or _keeps(sides[0 if many else 1], label)
    on = how.matching
    if on is None:
        return _keeps(sides[0], label)
    is_on = on.type == parser.LabelModifierType.Include
    return (label in on.labels) is is_on and _keeps(sides[0], label)


def _is_scalar(part: Any) -> bool:
    while isinstance(part, parser.ParenExpr | parser.UnaryExpr):
        part = part.expr
    if isinstance(part, parser.BinaryExpr):
        return _is_scalar(part.lhs) and _is_scalar(part.rhs)
    if isinstance(part, parser.Call):
        return bool(part.func.return_type == parser.ValueType.Scalar)
    return isinstance(part, parser.NumberLiteral | parser.StringLiteral)
