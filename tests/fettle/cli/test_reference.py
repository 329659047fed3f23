"""docs/commands.md is what the commands say of themselves."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fettle.cli.commands import ENVIRONMENT, main
from fettle.cli.reference import filled, names, page

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "commands.md"
MADE = [page for page in sorted(DOCS.glob("*.md")) if "<!-- made: " in page.read_text("utf-8")]


def test_the_page_of_commands_is_up_to_date() -> None:
    how = "run `python -m fettle.cli.reference > docs/commands.md`"
    assert PAGE.read_text(encoding="utf-8") == page(), how


@pytest.mark.parametrize("page", MADE, ids=lambda page: str(page.name))
def test_what_is_made_from_code_and_definitions_is_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == filled(text), "run `python -m fettle.cli.reference docs/*.md`"


def test_the_pages_have_every_code_metric_and_field() -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in MADE}
    assert (
        "| `NodeHeld` | An operator holds the node. | `health`, `minScore` |" in pages["reasons.md"]
    )
    assert "| `fettle_pods_at_risk` | " in pages["monitoring.md"]
    assert "\n| ready | type: `Ready`; faulty: `false`;" in pages["shipped-rows.md"]
    assert "| `AtRisk` | on a Pod: its own policy refuses" in pages["names.md"]
    assert "| `placement.requires[].message` | string | " in pages["policy-fields.md"]
    assert "[replace it by two](#from-one-deployment-to-two) |" in pages["upgrading.md"]
    assert "| `ForceDeleted` on a Pod: it was deleted by force" in pages["troubleshooting.md"]
    assert "| `ClaimIsShared` | Other pods use the same claim. |" in pages["failed-devices.md"]
    assert "| `exact` | Exactly these devices. |" in pages["predictions.md"]
    assert "| full, costly failures | default | 97.0 | – | 6650 | 60 | 22 |" in pages["goodput.md"]
    answers = pages["explain-json.md"]
    assert "| `pods[].atRisk` | Whether its policy refuses where it is. |" in answers
    assert "| `nodes.NAME.excluded` | What of the pod's own manifest keeps it off" in answers
    assert "| `process.sources[].ageSeconds` | Since its last word. |" in answers
    assert ", `answer.excluded[].detail`, " in answers


def test_troubleshooting_says_what_each_event_means_and_what_to_do() -> None:
    events = names().partition("## Events")[2]
    reasons = [line.split("`")[1] for line in events.splitlines() if line.startswith("| `")]
    assert len(reasons) > 10
    told = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    assert [name for name in reasons if f"`{name}`" not in told] == []


def flags(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from flags(each)


def test_the_help_names_each_flag_that_the_environment_can_give_and_fits_eighty_columns() -> None:
    named = {name for flag in flags(main) if isinstance(name := flag.envvar, str)}
    assert {"FETTLE_SERVER", "FETTLE_RECORDS"} <= named <= set(ENVIRONMENT)
    help_ = main.get_help(click.Context(main, info_name="fettle", terminal_width=80))
    assert all(name in help_ for name in ENVIRONMENT)
    assert max(map(len, help_.splitlines())) <= 80


def test_the_help_tells_of_each_command_in_words_that_fit() -> None:
    help_ = main.get_help(click.Context(main, info_name="fettle", terminal_width=80))
    listed = help_.partition("Commands:")[2]
    assert len(main.commands) > 20
    assert all(f"  {name} " in listed for name in main.commands)
    assert "..." not in listed
