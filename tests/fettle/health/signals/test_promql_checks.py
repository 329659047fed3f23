"""What cannot be PromQL is refused, and what can be is not."""

import json
import subprocess
from pathlib import Path

import pytest

from fettle.health import load_rules, metrics
from fettle.health.signals.promql_checks import complaint
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
