"""What `fettle lint --explain` and `fettle rules` say of rules."""

import json
from pathlib import Path
from textwrap import dedent

import pytest

from fettle.lint import CHECKS, REFUSALS, RULES, Check, Rule
from tests.fettle.cli.linted import CLAIM, ROOT, called, fettle, findings
from tests.fettle.lint import examples

ALL: tuple[Rule | Check, ...] = (*RULES, *REFUSALS, *CHECKS)
IDS = [rule.id for rule in ALL]


@pytest.mark.parametrize("asked", ["FTL036", "ftl036", "unused-claim"])
def test_a_rule_is_explained_by_its_id_or_name(asked: str) -> None:
    ran = fettle("--explain", asked)
    assert ran.returncode == 0
    assert ran.stdout.startswith("FTL036 unused-claim\n  what       A pod lists a claim that none")
    assert "  why        The devices are allocated to the pod and stay idle.\n" in ran.stdout
    assert ran.stdout.endswith("docs/rules.md#ftl036\n")
    assert called("rules", asked).stdout == ran.stdout


def test_a_rule_shows_a_mistake_and_what_differs_in_a_sound_object() -> None:
    said = fettle("--explain", "FTL233").stdout
    shown = said.partition("  wrong      without completions:\n")[2]
    wrong, _, sound = shown.partition("  sound      it finds nothing if instead:\n")
    assert [f["rule"] for f in findings("-", stdin=dedent(wrong))] == ["FTL233"]
    assert sound.startswith("    +   completions: 1\n  to mend")


def test_examples_are_those_of_the_tables() -> None:
    """`python -m tests.fettle.lint.examples` writes them."""
    assert examples.FILE.read_text() == examples.written()
    without = {r.id for r in (*RULES, *REFUSALS)} - {*examples.examples()}
    assert len(without) < 10, without


def test_a_rule_that_there_is_not_is_bad_input() -> None:
    for ran in (fettle("--explain", "unused-clam"), called("rules", "unused-clam")):
        assert ran.returncode == 2
        assert "there is no rule 'unused-clam': write unused-claim if that" in ran.stderr


def test_all_rules_are_listed_and_each_has_its_place_in_the_page() -> None:
    listed = json.loads(called("rules", "-o", "json").stdout)
    assert [rule["id"] for rule in listed] == IDS
    page = (ROOT / "docs" / "rules.md").read_text()
    for rule in listed:
        assert f'<a id="{rule["page"].removeprefix("docs/rules.md#")}"></a>**{rule["id"]}**' in page
    lines = called("rules").stdout.splitlines()
    assert [line[:6] for line in lines] == IDS


def test_sarif_links_each_rule_to_where_the_documents_are(tmp_path: Path) -> None:
    (tmp_path / "claim.yaml").write_text(CLAIM)
    given = (str(tmp_path), "--output", "sarif")
    for more, link in (
        ((), None),
        (("--docs", "https://a.example/b/"), "https://a.example/b/rules.html#ftl010"),
    ):
        (rule,) = json.loads(fettle(*given, *more).stdout)["runs"][0]["tool"]["driver"]["rules"]
        assert rule.get("helpUri") == link
    refused = fettle(*given, "--docs", "docs")
    assert (refused.returncode, "write a URL, such as https://" in refused.stderr) == (2, True)


def test_rules_about_metrics_are_still_for_prometheus() -> None:
    assert "groups:" in called("rules", "--prometheus").stdout
    assert called("rules", "--prometheus", "FTL001").returncode == 2
