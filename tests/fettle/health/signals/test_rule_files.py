"""The shipped tables, and an operator's rows over them."""

import re
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.health import rows_replaced, rule_mistakes
from fettle.health.signals import rule_files
from fettle.health.signals.rule_files import load_rules, parse_tables, read_row
from fettle.model import EvidenceKind, Family, SettingsError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("table", rule_files.TABLES)
def test_the_example_in_the_docstring_of_a_row_is_one(table: str) -> None:
    (text,) = re.findall(
        r"Such as `(\{.*?\})`\.\n", f"{rule_files.TABLES[table].__doc__}\n", re.DOTALL
    )
    (entry,) = parse_tables(f"{table}: [{text}]")[table]
    assert read_row(table, entry | {"source": "its docstring"}, 0, "").name


def test_every_shipped_row_says_where_it_is_from() -> None:
    rules = load_rules()
    tables = (rules.families, rules.signals, rules.xid_classes, rules.xids, rules.actions)
    matched = (
        rules.conditions,
        rules.device_conditions,
        rules.taints,
        rules.attributes,
        rules.labels,
        rules.refusals,
        rules.starts,
        rules.recoveries,
    )
    assert all(row.source for table in (*tables, *matched) for row in table.values())


def test_shipped_tables_are_read_as_those_of_an_operator_would_be() -> None:
    """At start they are read faster, without what says where a mistake is."""
    for file in resources.files("fettle.health.signals").joinpath("rules").iterdir():
        text = file.read_text(encoding="utf-8")
        assert parse_tables(text) == yaml.load(text, yaml.CSafeLoader), file.name


def test_every_family_has_a_half_life() -> None:
    assert set(load_rules().families) == {family.value for family in Family}


@pytest.mark.parametrize(
    ("codes", "kind", "weight"),
    [
        ((79, 151, 167, 169, 172, 173), EvidenceKind.LATCHED, 1.0),
        (
            (46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 171),
            EvidenceKind.LATCHED,
            1.0,
        ),
        ((54, 123, 142), EvidenceKind.LATCHED, 1.0),
        ((163,), EvidenceKind.LEVEL, 1.0),  # 162 says when it is over
        ((74, *range(144, 151), 166), EvidenceKind.LEVEL, 0.5),
        ((8, 11, 13, 25, 31, 32, 45, 68, 99, 105, 126, 135, 139, 170), EvidenceKind.LEVEL, 0.0),
        (
            (37, 38, 43, 44, 66, 67, 78, 93, 106, 107, 137, 141, 152, 153, 159, 162),
            EvidenceKind.LEVEL,
            0.0,
        ),
        ((63, 92, 94, 121, 157, 160, 161, 164, 165, 168), EvidenceKind.LEVEL, 0.1),
        ((154,), EvidenceKind.LEVEL, 0.5),
        ((6, 185, 9999), EvidenceKind.LEVEL, 0.1),
    ],
)
def test_xids_mean_what_the_catalog_advises(
    codes: tuple[int, ...], kind: EvidenceKind, weight: float
) -> None:
    rules = load_rules()
    for code in codes:
        xid = rules.xid(str(code))
        assert (xid.kind, xid.weight) == (kind, weight), code
        assert xid.text.startswith(f"XID {code}")


def test_an_xid_without_a_row_is_an_unknown_fault_and_says_so() -> None:
    assert load_rules().xid("185").text == "XID 185: unknown fault (not in the table)"


@pytest.mark.parametrize(
    ("message", "kind", "weight", "says"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", EvidenceKind.LATCHED, 1.0, "must be reset"),
        ("from 0x0 (None) to 0x1 (PF FLR)", EvidenceKind.LATCHED, 1.0, "must be reset"),
        (
            "from 0x0 (None) to 0x2 (Node Reboot Required)",
            EvidenceKind.LATCHED,
            1.0,
            "must be rebooted",
        ),
        (
            "from 0x1 (GPU Reset Required) to 0x2 (OS Reboot)",
            EvidenceKind.LATCHED,
            1.0,
            "must be rebooted",
        ),
        ("from 0x0 (None) to 0x3 (Drain P2P)", EvidenceKind.LEVEL, 0.5, "must be drained"),
        (
            "from 0x0 (None) to 0x4 (Drain and Reset)",
            EvidenceKind.LATCHED,
            1.0,
            "drained, then reset",
        ),
        (
            "from 0x1 (GPU Reset Required) to 0x0 (None)",
            EvidenceKind.LEVEL,
            0.0,
            "no recovery action",
        ),
        ("from 0x0 (None) to 0xff (New)", EvidenceKind.LEVEL, 0.5, "action 255 (not in the table)"),
        ("", EvidenceKind.LEVEL, 0.5, "recovery action changed"),
    ],
)
def test_xid_154_means_the_recovery_action_that_its_message_names(
    message: str, kind: EvidenceKind, weight: float, says: str
) -> None:
    xid = load_rules().xid("154", f"GPU recovery action changed {message}" if message else "")
    assert (xid.kind, xid.weight) == (kind, weight)
    assert xid.text.startswith("XID 154: ")
    assert says in xid.text


def test_other_xids_are_not_read_by_a_message_about_recovery() -> None:
    message = "GPU recovery action changed from 0x0 (None) to 0x0 (None)"
    assert load_rules().xid("79", message) == load_rules().xid("79")


def test_a_condition_of_a_known_type_is_found_before_patterns() -> None:
    rules = load_rules()

    def found(type_: str, reason: str) -> str | None:
        row = rules.condition(type_, reason)
        return row.name if row is not None else None

    assert found("KernelDeadlock", "DockerHung") == "npd-kernel-deadlock"
    assert found("FrequentContainerdRestart", "FrequentContainerdRestart") == "npd-restarts"
    assert found("AcceleratedHardwareReady", "NvidiaXID79Error") == "eks-xid"
    assert found("AcceleratedHardwareReady", "NeuronDMAError") == "eks-neuron-dma"
    assert found("AcceleratedHardwareReady", "SomethingNew") == "eks-accelerator"
    assert found("XID74Reg4ECCError", "XID74Reg4ECCErrorIsNotHealthy") == "nvsentinel-xid-74"
    assert found("NewCheck", "NewCheckIsNotHealthy") == "nvsentinel-any"
    # good is True here, whatever NVSentinel's reasons look like
    assert found("GpuReady", "GpuIsHealthy") is None
    assert found("MemoryPressure", "KubeletHasSufficientMemory") is None


def test_an_operators_row_replaces_the_shipped_one_of_that_name(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        conditions:
        - {name: npd-kernel-deadlock, type: KernelDeadlock, faulty: true, family: node,
           weight: 0.2, source: our runbook}
        xids:
        - {name: 63, class: reset, family: memory, text: row remapped, source: our runbook}
        """,
    )
    rules, shipped = load_rules(path), load_rules()
    row = rules.condition("KernelDeadlock", "DockerHung")
    assert row is not None
    assert row.weight == 0.2
    assert rules.xid("63").kind is EvidenceKind.LATCHED
    assert len(rules.conditions) == len(shipped.conditions)
    assert rules.xid("79") == shipped.xid("79")


def test_an_operators_new_row_is_tried_before_shipped_catch_alls(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        taints:
        - {name: ours, key: example.org/slow, family: thermal, weight: 0.4, source: us}
        """,
    )
    row = load_rules(path).taint("any.driver", "example.org/slow", "", "NoExecute")
    assert row is not None
    assert row.name == "ours"


def test_rows_are_read_with_the_names_of_the_last_version_too(tmp_path: Path) -> None:
    text = (
        "refusals: [{name: ours, message: 'FPGA is busy', provoked: true, source: us}]\n"
        "signals: [{name: provoked, family: admission, weight: 0.2, source: us}]\n"
    )
    assert rule_mistakes(text, "rules.yaml") == []
    assert rows_replaced(text, "rules.yaml")[-1].endswith("instead of shipped 'tenant-caused'")
    rules = load_rules(write(tmp_path, text))
    row = rules.refusal("Allocate failed due to FPGA is busy")
    assert row is not None
    assert row.tenant_caused
    assert rules.signals["tenant-caused"].weight == 0.2


def test_an_operators_rows_say_what_refusals_and_failed_starts_mean(tmp_path: Path) -> None:
    rules = load_rules(
        write(
            tmp_path,
            "refusals:\n"
            "  - {name: ours, message: 'FPGA is busy', tenant_caused: true, source: our plugin}\n"
            "starts:\n"
            "  - {name: npu, message: 'npu-hook:', source: our runtime}\n"
            "  - {name: nvidia, message: 'nvidia-container-cli: ld', ignored: true, source: us}\n",
        )
    )
    row = rules.refusal("Allocate failed due to FPGA is busy")
    assert row is not None
    assert (row.name, row.tenant_caused) == ("ours", True)

    def said_of(message: str) -> tuple[str, bool]:
        found = rules.said_of_start(message)
        return ("", False) if found is None else (found[1], found[0].ignored)

    assert said_of("runc: npu-hook: no device") == ("npu-hook: no device", False)
    assert said_of("nvidia-container-cli: ldcache error") == (
        "nvidia-container-cli: ldcache error",
        True,
    )
    assert said_of("nvidia-container-cli: device error") == ("", False)
    assert said_of("NodePrepareResources: timeout")[0]


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    ours, shipped = load_rules(write(tmp_path, "")), load_rules()
    assert ours.conditions == shipped.conditions
    assert ours.xids == shipped.xids
    assert list(ours.taints) == list(shipped.taints)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conditions: [{type: X}]", "conditions, row 1: a row needs a name"),
        ("conditions: 7", "conditions: expected a list of rows"),
        ("[1, 2]", "expected tables"),
        ("weather: []", "unknown table 'weather'"),
        ("a: [", "invalid YAML"),
        (
            "taints: [{name: t, key: k, family: bus, weight: 2, source: s}]",
            "taints, row 't': .*weight",
        ),
        ("taints: [{name: t, key: k, family: sun, weight: 0, source: s}]", "row 't': .*family"),
        ("taints: [{name: t, key: k, family: bus, weight: 0}]", "row 't': .*`source`"),
        ("taints: [{name: t, wieght: 0}]", "row 't': "),
        ("families: [{name: moon, half_life_s: 1, source: s}]", "row 'moon': .*moon"),
        ("families: [{name: bus, half_life_s: 0, source: s}]", "row 'bus': .*half_life_s"),
        (
            "labels: [{name: l, key: '(', value: v, source: s}]",
            "row 'l': key: .*regular expression",
        ),
        (
            "labels: [{name: l, key: k, value: v, source: s, resource: r/g}]",
            "row 'l': key: .*group",
        ),
        (
            "xids: [{name: 7, class: bad, family: bus, text: t, source: s}]",
            "xids, row '7': class: unknown class 'bad'",
        ),
        (
            "recoveries: [{name: 9, class: bad, family: bus, text: t, source: s}]",
            "recoveries, row '9': class: unknown class 'bad'",
        ),
        (
            "taints: [{name: t, key: fettle.dev/x, family: bus, weight: 1, source: s}]",
            "row 't': key: names that begin with fettle.dev/ are Fettle's own",
        ),
        (
            "conditions: "
            "[{name: c, type: fettle.dev/X, faulty: true, family: bus, weight: 1, source: s}]",
            "row 'c': type: names that begin with fettle.dev/ are Fettle's own",
        ),
        (
            "labels: [{name: l, key: '^fettle\\.dev/x', value: v, source: s}]",
            "row 'l': key: names that begin with fettle.dev/ are Fettle's own",
        ),
        (
            "refusals: [{name: r, message: '(', tenant_caused: false, source: s}]",
            "row 'r': message: .*regular expression",
        ),
        ("starts: [{name: r, message: '(', source: s}]", "row 'r': message: .*regular expression"),
        ("starts: [{name: r, source: s}]", "row 'r': .*message"),
        ("attributes: [{name: a, family: bus, weight: 0, source: s}]", "row 'a': .*driver"),
        (
            "signals: [{name: gapp, family: driver, weight: 0.9, source: s}]",
            "signals, row 'gapp': unknown signal; expected one of gap, admission, .*remediated",
        ),
        (
            "conditions: [{name: c, type: T, faulty: 'True', family: bus, weight: 0, source: s}]",
            "row 'c': .*`bool`, got `str`.*faulty",
        ),
        ("xid_classes: [{name: lost, weight: '0.5', source: s}]", "row 'lost': .*weight"),
        (
            "conditions: [{name: c, type: T, faulty: true, family: bus, weight: 0, source: s,"
            " heartbeat_s: 0}]",
            "row 'c': .*heartbeat_s",
        ),
        (
            "conditions: [{name: c, type: T, faulty: maybe, family: bus, weight: 0, source: s}]",
            "row 'c': .*faulty",
        ),
        (
            "conditions: [{name: c, type: T, faulty: true, family: bus, weight: 0, "
            "format: morse, source: s}]",
            "row 'c': format",
        ),
        (
            "conditions: [{name: c, type: T, faulty: true, family: bus, weight: 0, source: s,"
            " xid: 'Xid (?P<pci>.*) (.*)'}]",
            "row 'c': xid: .*has a group pci, so it needs a group xid too",
        ),
        (
            "conditions: [{name: c, type: T, faulty: true, family: bus, weight: 0, source: s,"
            " boot: 'boot .*'}]",
            "row 'c': boot: .*must have 1 group",
        ),
        (
            "conditions: [{name: c, type: T, faulty: true, family: bus, weight: 0, source: s,"
            " message: '('}]",
            "row 'c': message: .*regular expression",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_file_row_and_field(
    tmp_path: Path, text: str, says: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError, match=says) as error:
        load_rules(path)
    assert str(path) in str(error.value)


def test_a_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_rules(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        load_rules(tmp_path / "latin.yaml")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates()
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("name", "type", "match", "reason", "faulty", "family", "weight", "format", "source")
ROWS = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, ANY)) | ANY
TABLES = st.sampled_from(["conditions", "xids", "families", "labels", "taints", "recoveries"])


def refusal(text: str) -> str:
    """What is said of a file with this text; "" if it is read."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), text)
        try:
            load_rules(path)
        except SettingsError as error:
            return str(error).removeprefix(f"rules file {path}: ")
    return ""


@pytest.mark.long
@settings(max_examples=30, deadline=None)  # each reads the shipped tables too
@given(st.dictionaries(TABLES | SCALARS, st.lists(ROWS, max_size=2) | ANY, max_size=2) | ANY)
def test_whatever_the_file_holds_it_is_rules_or_one_sentence(value: Any) -> None:
    said = refusal(yaml.safe_dump(value, allow_unicode=True))
    assert len(said.splitlines()) <= 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conditions: [", "invalid YAML: line 1"),
        ("xids:\n- {name: 2001-99-99}", "invalid YAML: line 2: '2001-99-99'"),
        ("xids: " + "[" * 3000, "nested too deeply"),
    ],
)
def test_invalid_yaml_is_refused_with_its_line(text: str, says: str) -> None:
    assert says in refusal(text)
