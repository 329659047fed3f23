"""What can be no PromQL, as far as that shows without Prometheus. Whatever it lets pass, Prometheus
may still refuse. Pure text.
"""

import re
from difflib import get_close_matches

from fettle.health.signals.promql import AGGREGATORS, ASIDE, FUNCTIONS, STRINGS, WORDS, calls

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
_OF_VICTORIA_METRICS = frozenset(_METRICSQL.split())
"""What MetricsQL has besides."""
_THRESHOLD = re.compile(r"(?:==|!=|[><]=?)(?!=|\s*(?i:bool)\b)|(?i:\bunless\b|\babsent)")
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


def has_threshold(query: str) -> bool:
    """Whether it leaves any series out by its value, or by others."""
    return _THRESHOLD.search(ASIDE.sub(" ", STRINGS.sub("", query))) is not None


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
    known = AGGREGATORS | FUNCTIONS | _OF_VICTORIA_METRICS
    for name in calls(plain):
        if name not in known:
            near = get_close_matches(name, known, 1)
            return f"there is no function {name}" + (f"; write {near[0]}" if near else "")
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
