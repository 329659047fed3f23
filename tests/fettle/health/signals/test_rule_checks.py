"""All mistakes in a rules file, each with its row and what to do."""

import pytest
import yaml

from fettle.health import is_rules_file, rows_replaced, rule_mistakes
from fettle.health.signals.rule_checks import RuleMistake


def mistakes(text: str) -> list[RuleMistake]:
    return rule_mistakes(text, "rules.yaml")


def condition(**changes: object) -> str:
    row = {"name": "c", "type": "T", "faulty": True, "family": "bus", "weight": 0.5, "source": "s"}
    kept = {field: value for field, value in {**row, **changes}.items() if value is not None}
    return yaml.safe_dump({"conditions": [kept]})


@pytest.mark.parametrize(
    ("text", "path", "problem", "fix"),
    [
        (condition(faulty=None), "conditions[0]", "faulty is missing", "`faulty: true` if True"),
        (condition(source=None), "conditions[0]", "source is missing", "where the rule comes from"),
        (condition(weight=1.5), "conditions[0].weight", "<= 1.0", "a number from 0 to 1"),
        (condition(weight="0.5"), "conditions[0].weight", "got `str`", "without quotation marks"),
        (condition(family="sun"), "conditions[0].family", "expected one of memory, link", ""),
        (condition(faulty="True"), "conditions[0].faulty", "got `str`", "`faulty: true` if True"),
        (condition(kind="lached"), "conditions[0].kind", "expected one of latched", ""),
        (condition(heartbeat_s=0), "conditions[0].heartbeat_s", "> 0", "seconds above 0"),
        (condition(hearbeat_s=9), "conditions[0].hearbeat_s", "unknown", "write heartbeat_s"),
        (condition(colour="red"), "conditions[0].colour", "unknown field", "its fields are name"),
        (
            condition(message="a(?!b)"),
            "conditions[0].message",
            "cannot look ahead or behind",
            "write it without",
        ),
        (condition(xid="("), "conditions[0].xid", "regular expression", "close each bracket"),
        (condition(type="fettle.dev/X"), "conditions[0].type", "Fettle's own", ""),
        (condition(name=None), "conditions[0]", "row 1 needs a name", "`- name: …`"),
        ("condition: []", "condition", "unknown table 'condition'", "write conditions"),
        ("weather: []", "weather", "unknown table 'weather'", "write one of families"),
        ("conditions: {a: b}", "conditions", "a list of rows, not a dict", "`- name: …`"),
        ("[1, 2]", "", "expected tables, not a list", "write tables: families"),
        ("a: [", "", "invalid YAML: line 1", ""),
        (
            "families: [{name: moon, half_life_s: 1, source: s}]",
            "families[0]",
            "'moon' is not a valid Family",
            "a row of families is named memory",
        ),
        (
            "signals: [{name: gapp, weight: 0.1, source: s}]",
            "signals[0]",
            "unknown signal; expected one of gap",
            "",
        ),
        (
            "xids: [{name: 7, class: bad, family: bus, text: t, source: s}]",
            "xids[0]",
            "class: unknown class 'bad'; expected one of lost",
            "",
        ),
        (
            "taints: [{name: t, key: a/b, effect: NoSchedul, family: bus, weight: 1, source: s}]",
            "taints[0].effect",
            "no device taint has the effect 'NoSchedul'",
            "",
        ),
        (
            "exporters: [{name: e, node: [n], namespace: [], source: s}]",
            "exporters[0].namespace",
            "a label that says whose series it is is needed",
            "",
        ),
        (
            "metrics: [{name: m, exporter: dcgm, query: x > 1, family: bus, source: s}]",
            "metrics[0]",
            "weight is missing",
            "write the share of the score",
        ),
        (
            "metrics: [{name: m, exporter: dcgm, query: max by ($device) (x) > 1, xid: code,"
            " family: bus, source: s}]",
            "metrics[0]",
            "xid: nothing stands for code: the query keeps no label of that name",
            "",
        ),
        (
            "xids: [{name: abc, class: defect, family: bus, text: t, source: s}]",
            "xids[0].name",
            "'abc' is no XID, which is a number from 1 to 999",
            "",
        ),
        (
            "xids: [{name: 79, class: defect, family: bus, text: t, source: s, ends: [x]}]",
            "xids[0].ends",
            "'x' is no XID",
            "",
        ),
        (
            "labels: [{name: l, key: k, value: true, source: s}]",
            "labels[0].value",
            "Expected `str`, got `bool`",
            "quote it",
        ),
        (
            "annotations: [{name: a, key: k, value: v, weight: 1, source: s, resource: r/g}]",
            "annotations[0]",
            "resource and units are needed together",
            "",
        ),
    ],
)
def test_a_mistake_has_its_field_and_what_to_do(
    text: str, path: str, problem: str, fix: str
) -> None:
    (found,) = mistakes(text)
    assert found.path == path
    assert problem in found.problem
    assert fix in found.fix


def test_all_mistakes_are_found_at_once_also_several_of_one_row() -> None:
    found = mistakes(
        """
        conditions:
          - {name: a, type: A, faulty: maybe, family: sun, weight: 7, source: s}
          - {name: b, typ: B, faulty: true, family: bus, weight: 1, source: s}
        labels:
          - {name: l, key: "(", value: v, source: s}
        """
    )
    assert [(one.row, one.path) for one in found] == [
        ("a", "conditions[0].faulty"),
        ("a", "conditions[0].family"),
        ("a", "conditions[0].weight"),
        ("b", "conditions[1].typ"),
        ("l", "labels[0].key"),
    ]


ROW = "faulty: true, family: bus, weight: 0.5, source: s"


@pytest.mark.parametrize(
    "text",
    [
        f"conditions: [{{name: wide, type: 'Gpu*', {ROW}}}, {{name: never, type: 'GpuX*', {ROW}}}]",
        f"conditions: [{{name: wide, type: X, {ROW}}}, {{name: never, type: X, {ROW}}}]",
        f"conditions: [{{name: wide, type: X, reason: 'a*', {ROW}}},"
        f" {{name: never, type: X, reason: ab, {ROW}}}]",
        r"labels: [{name: wide, key: 'x\.y/.*', value: '*', source: s},"
        r" {name: never, key: 'x\.y/z', value: bad, source: s}]",
        "taints: [{name: wide, key: 'a/*', family: bus, weight: 0, source: s},"
        " {name: never, key: a/b, family: bus, weight: 1, source: s}]",
        "annotations: [{name: wide, key: a, value: '*', weight: 0, source: s},"
        " {name: never, key: a, value: v, weight: 1, source: s}]",
    ],
)
def test_a_row_that_an_earlier_one_hides_is_found(text: str) -> None:
    (found,) = mistakes(text)
    assert found.row == "never"
    assert "it never counts: row 'wide' of this file comes first" in found.problem
    assert found.fix == "put it first, or make the other one narrower"


@pytest.mark.parametrize(
    "text",
    [
        f"conditions: [{{name: a, type: GpuX, {ROW}}}, {{name: b, type: 'Gpu*', {ROW}}}]",
        f"conditions: [{{name: b, type: 'Gpu*', {ROW}}}, {{name: a, type: GpuX, {ROW}}}]",
        f"conditions: [{{name: a, type: X, reason: 'a?', {ROW}}},"
        f" {{name: b, type: X, reason: 'a*', {ROW}}}]",
        "labels: [{name: a, key: 'x.*', value: 'a', source: s},"
        " {name: b, key: 'x/y', value: b, source: s}]",
        "labels: [{name: a, key: 'x|y', value: '*', source: s},"
        " {name: b, key: 'x|z', value: '*', source: s}]",
        "",
    ],
)
def test_rows_that_count_are_no_mistakes(text: str) -> None:
    assert mistakes(text) == []


def test_a_row_above_of_the_same_name_would_be_lost() -> None:
    (found,) = mistakes(f"conditions: [{{name: a, type: A, {ROW}}}, {{name: a, type: B, {ROW}}}]")
    assert "a row above has the same name" in found.problem


def test_a_rules_file_is_known_by_its_tables() -> None:
    rows = {"labels": [{"name": "a"}]}
    assert is_rules_file(rows)
    assert is_rules_file(rows, certainly=True)
    assert is_rules_file({"labels": {"app": "x"}})
    assert is_rules_file({**rows, "condition": []})
    assert is_rules_file({"condition": [{"name": "a"}]})
    assert not is_rules_file({"condition": [], "replicas": 1})
    assert not is_rules_file({"condition": [{"name": "a"}]}, certainly=True)
    assert not is_rules_file({"labels": {"app": "x"}, "replicas": 1})
    assert not is_rules_file({"labels": {"app": "x"}}, certainly=True)
    assert not is_rules_file({"taints": []}, certainly=True)
    assert not is_rules_file({**rows, "replicas": 1}, certainly=True)
    assert not is_rules_file({"kind": "Pod", **rows})
    assert not is_rules_file([rows])


def test_mistakes_of_one_row_hide_none_of_others_nor_any_across_rows() -> None:
    text = """
conditions:
  - {name: "", type: A, faulty: true, family: bus, weight: 0.5, source: x}
  - {name: c, type: "", faulty: perhaps, family: bux, wieght: 2, source: x}
  - {name: any, type: "*", reason: R, faulty: true, family: bus, weight: 0.1, source: x}
  - {name: one, type: Foo, reason: R, faulty: true, family: bus, weight: 0.1, source: x}
xids:
  - {name: 79, class: lots, family: bus, text: t, source: x}
  - {name: 80, class: lots, family: sun, text: t, source: x}
metrics:
  - {name: a b, exporter: dgcm, query: "max by ($device) ()", family: bus, weight: 1, source: x}
labels:
  - {name: l, key: "a(", value: x, source: x, resource: a/b}
signals: []
"""
    assert sorted((one.path, one.problem.partition(";")[0][:32]) for one in mistakes(text)) == [
        ("conditions[0]", "row 1 needs a name"),
        ("conditions[1].family", "Invalid enum value 'bux' - at `$"),
        ("conditions[1].faulty", "Expected `bool`, got `str` - at "),
        ("conditions[1].type", "must not be empty"),
        ("conditions[1].wieght", "unknown field 'wieght'"),
        ("labels[0].key", "'a(' is not a valid regular expr"),
        ("metrics[0]", "exporter: unknown exporter 'dgcm"),
        ("metrics[0].name", "'a b' must be letters, digits, '"),
        ("metrics[0].query", "it is no PromQL: no arguments fo"),
        ("xids[0]", "class: unknown class 'lots'"),
        ("xids[1]", "class: unknown class 'lots'"),
        ("xids[1].family", "Invalid enum value 'sun' - at `$"),
    ]


@pytest.mark.parametrize("name", ["''", "'  '", "null", "true", "[]"])
def test_a_row_needs_a_name_of_letters(name: str) -> None:
    row = f"{{name: {name}, type: A, faulty: true, family: bus, weight: 0.5, source: x}}"
    assert [one.problem for one in mistakes(f"conditions: [{row}]")] == ["row 1 needs a name"]


def test_what_a_row_must_say_is_not_empty() -> None:
    for table, row in {
        "conditions": "type: '', faulty: true, family: bus, weight: 0.5, source: x",
        "alerts": "alert: '', exporter: dcgm, family: bus, weight: 0.5, source: x",
        "refusals": "message: '', tenant_caused: true, source: x",
        "events": "reason: '', family: bus, weight: 0.5, source: x",
        "attributes": "driver: d, attribute: '', value: x, family: bus, weight: 0.5, source: x",
    }.items():
        (found,) = mistakes(f"{table}: [{{name: a, {row}}}]")
        assert found.problem == "must not be empty"
    empty = "labels: [{name: a, key: k, value: '', source: x}]"
    assert mistakes(empty) == []


def test_an_xid_that_is_found_by_a_regular_expression_is_its_group() -> None:
    (found,) = mistakes(condition(xid="Xid [0-9]+"))
    assert found.path == "conditions[0].xid"
    assert "put the number in brackets, as in 'Xid ([0-9]+)'" in found.problem
    for form in ("Xid ([0-9]+)", "any", "ErrorCode", ""):
        assert mistakes(condition(xid=form)) == []


@pytest.mark.parametrize(
    ("text", "shipped"),
    [
        (condition(type="GpuMemWatch"), "'nvsentinel-mem'"),
        (
            condition(type="AcceleratedHardwareReady", reason="DCGMHealthCode122", faulty=False),
            "'eks-health-check'",
        ),
        (condition(name="nvsentinel-mem", type="GpuMemWatch"), "'nvsentinel-mem'"),
        ("xids: [{name: 31, class: info, family: driver, text: t, source: s}]", "'31'"),
        (
            "events: [{name: own, reason: AcceleratedHardwareReady, message: ^NvidiaThermalError,"
            " family: thermal, weight: 0.0, source: s}]",
            "'eks-thermal'",
        ),
        ("refusals: [{name: own, message: GPU is lost, source: s}]", "'gpu-lost'"),
    ],
)
def test_it_is_said_which_shipped_row_a_row_counts_instead_of(text: str, shipped: str) -> None:
    (said,) = rows_replaced(text, "rules.yaml")
    assert said.endswith(f" counts instead of shipped {shipped}")


def test_a_code_of_dcgm_that_is_misspelt_is_said_to_count_never() -> None:
    row = "dcgm_codes: [{name: %s, family: link, weight: 0.0, text: t, source: s}]"
    (mistake,) = rule_mistakes(row % "DCGM_FR_IMEX_UNHELTHY", "rules.yaml")
    assert (mistake.path, mistake.fix) == ("dcgm_codes[0].name", "write DCGM_FR_IMEX_UNHEALTHY")
    for fine in ("DCGM_FR_IMEX_UNHEALTHY", "122", "DCGM_FR_OF_NEXT_YEAR", "9999"):
        assert rule_mistakes(row % fine, "rules.yaml") == []


def test_a_row_about_something_new_replaces_nothing() -> None:
    assert rows_replaced(condition(type="OurBurnIn"), "rules.yaml") == []
