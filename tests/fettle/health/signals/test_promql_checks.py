"""What cannot be PromQL is refused, and what can be is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fettle.health import load_rules, metrics
from fettle.health.signals import rule_files
from fettle.health.signals.promql_checks import can_have, complaint, has_threshold
from tests.prometheus.server import PROMTOOL, needs_prometheus

QUERIES = r"""
foo
foo > 5
-foo * -1
foo > -1
sum by () (foo)
sum(foo) without (b) > 1
sum(rate(foo{a="b",c=~"d|e",}[5m])) > bool 0
time() - foo
hour() > 5
foo offset -5m > 2
foo @ 1609746000
foo @ end() > 1
foo unless on (a) bar
foo and on() bar
foo / on (a) group_left (b) bar
foo / on (a) group_left bar
{__name__=~"a|b"} unless {job="x"}
max_over_time(foo[1h30m:5m])
foo > Inf
label_replace(foo, "a", "$1", "b", "(.*)")
count_values("v", foo)
absent(foo{a="}#b"})
foo == 1 or bar == 2
rate(foo[5m]) atan2 bar
quantile by (a) (0.5, foo)
foo{a!="", b!~"x"} >= 3e5
foo{}
foo:bar:baz > 0x1f
foo # a remark > >
""".strip().splitlines()

ODD = r"""
()
max by (a) ()
rate()
foo >
> 5
and foo
foo or or bar
foo * / bar
foo > > 5
foo bar
foo 5
sum(foo) bar
sum(foo) by
sum(foo,)
foo > 5 6
foo[5x]
foo[]
[5m]
foo{a}
foo{a=}
foo{a=b}
foo{="b"}
foo{a=='b'}
foo{a="b" c="d"}
foo{a="b}
foo)
(foo
foo[5m
!foo
foo = 5
foo & bar
foo; bar
tell me of hot ones
rate(foo)
sum_over_time(foo)
sum(foo[5m])
topk(foo)
RATE(foo[5m])
# only a remark
""".strip().splitlines()


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_not_refused(query: str) -> None:
    assert complaint(query) == ""


@pytest.mark.parametrize("query", ["", "  ", *ODD])
def test_what_is_no_query_is_refused(query: str) -> None:
    assert complaint(query) != ""


def test_no_shipped_query_is_refused() -> None:
    for one in metrics.queries(load_rules()).values():
        assert complaint(one.query) == ""
        assert one.until == "" or complaint(one.until) == ""
        assert one.missed == "" or complaint(one.missed) == ""


def test_shipped_rows_pass_all_that_an_operators_rows_must() -> None:
    rows = Path(rule_files.__file__).parent / "rules" / "metrics.yaml"
    assert load_rules(rows).metrics == load_rules().metrics


NESTED = {
    "brackets": lambda n: "(" * (n // 2) + "x" + ")" * (n // 2),
    "unclosed brackets": lambda n: "(" * n,
    "signs": lambda n: "-" * n + "x",
    "sums": lambda n: "x" + "+x" * (n // 2),
    "powers": lambda n: "x" + "^x" * (n // 2),
    "functions": lambda n: "abs(" * (n // 5) + "x" + ")" * (n // 5),
}


@pytest.mark.parametrize("length", [1_990, 100_000])
@pytest.mark.parametrize("shape", NESTED)
def test_no_query_is_nested_too_deeply(shape: str, length: int) -> None:
    query = NESTED[shape](length)
    if complaint(query) == "":
        has_threshold(query)
        can_have(query, ["UUID"])


@pytest.mark.long
def test_the_parser_is_loaded_only_for_rows_of_ones_own(tmp_path: Path) -> None:
    code = """
import sys
import fettle.serve.serving, fettle.cli.commands
from fettle.health import load_rules, metrics
metrics.queries(load_rules(sys.argv[1]))
assert "promql_parser" not in sys.modules
"""
    rules = tmp_path / "rules.yaml"
    rules.write_text("families: [{name: bus, half_life_s: 60, source: us}]")
    subprocess.run([sys.executable, "-c", code, str(rules)], check=True, timeout=60)


@pytest.mark.long
@needs_prometheus
def test_prometheus_sees_it_the_same_way(tmp_path: Path) -> None:
    def refused(queries: list[str]) -> list[str]:
        """Each by itself: what promtool says of a file does not name all that is wrong."""
        found = []
        for query in queries:
            file = tmp_path / "rules.json"
            rule = {"alert": "A", "expr": query}
            file.write_text(json.dumps({"groups": [{"name": "g", "rules": [rule]}]}))
            ran = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True)
            if ran.returncode != 0:
                found.append(query)
        return found

    assert refused(QUERIES) == []
    assert refused(ODD) == ODD
