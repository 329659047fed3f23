"""What authors ask `fettle lint` to ignore. The forms are those of others: kube-linter has
annotations `ignore-check.kube-linter.io/NAME: reason` (docs/configuring-kubelinter.md), checkov has
comments `# checkov:skip=ID:reason`."""

import json
from pathlib import Path

import pytest

from fettle.lint import Linter, Manifest, Severity
from tests.fettle.cli.linted import CLAIM, LIST, fettle
from tests.fettle.lint.clusters import view_of

COUNT = "count: 40"


def _annotated(reason: str, rule: str = "FTL010") -> str:
    return CLAIM.replace(
        "  name: big\n",
        f"  name: big\n  annotations:\n    ignore-check.fettle.dev/{rule}: {reason}\n",
    )


@pytest.mark.parametrize(
    "text",
    [
        _annotated("it waits for a driver"),
        _annotated("it waits for a driver", "claim-too-large"),
        CLAIM.replace(COUNT, f"{COUNT}  # fettle:ignore=FTL010: it waits for a driver"),
        CLAIM.replace(COUNT, f"# fettle:ignore=ftl010: it waits for a driver\n\n        {COUNT}"),
    ],
)
def test_a_finding_with_a_reason_is_ignored(text: str) -> None:
    ran = fettle("-", stdin=text)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout
    assert ran.stderr == "1 objects in 1 files: 0 to deny, 0 to warn about, 1 ignored\n"
    assert json.loads(fettle("-", "-o", "json", stdin=text).stdout) == []
    (result,) = json.loads(fettle("-", "-o", "sarif", stdin=text).stdout)["runs"][0]["results"]
    assert result["suppressions"] == [
        {"kind": "inSource", "justification": "it waits for a driver"}
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_annotated('" "'), "<stdin>:8: to ignore FTL010 has no effect without a reason: write"),
        (
            CLAIM.replace(COUNT, f"{COUNT}  # fettle:ignore=FTL010"),
            "<stdin>:13: to ignore FTL010 has no effect without a reason: write why",
        ),
        (_annotated("why", "FTL033"), "<stdin>:8: to ignore FTL033 has no effect: the rule finds"),
        (_annotated("why", "FTL999"), "<stdin>:8: to ignore FTL999 has no effect: there is no su"),
        (
            CLAIM + "# fettle:ignore=FTL010: after it\n",
            "<stdin>:14: to ignore FTL010 has no effect: the rule finds nothing there, so take",
        ),
    ],
)
def test_what_ignores_nothing_is_told_and_the_finding_stays(text: str, says: str) -> None:
    ran = fettle("-", stdin=text)
    assert ran.returncode == 1
    assert "Deny FTL010" in ran.stdout
    assert f"fettle: {says}" in ran.stderr


def test_a_rule_that_needs_to_know_the_cluster_is_not_told_to_find_nothing() -> None:
    text = _annotated("grows soon", "FTL009").replace("count: 40", "count: 4")
    assert "has no effect" not in fettle("-", stdin=text).stderr


def test_an_excuse_holds_for_its_object_alone(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(f"{_annotated('one')}---\n{LIST}---\n{CLAIM}")
    found = json.loads(fettle(str(tmp_path), "-o", "json").stdout)
    assert [one["line"] > 20 for one in found if one["rule"] == "FTL010"] == [True]


async def test_the_webhooks_rules_deny_whatever_an_object_asks_to_ignore() -> None:
    import msgspec

    manifest = Manifest(msgspec.yaml.decode(_annotated("please")))
    found = await Linter().lint(manifest, view_of([]))
    assert ("FTL010", Severity.DENY) in {(one.rule, one.severity) for one in found}


def test_nothing_is_called_vain_for_what_other_files_may_hold() -> None:
    """Whether a claim is of devices that only containers get depends on the claim."""
    pod = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations: {ignore-check.fettle.dev/FTL036: a sidecar is injected and uses it}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: of-another-file}]
  containers: [{name: main, image: x}]
"""
    ran = fettle("-", stdin=pod)
    assert (ran.returncode, "has no effect" in ran.stderr) == (0, False), ran.stderr
