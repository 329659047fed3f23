"""docs/commands.md is what the commands say of themselves."""

from pathlib import Path

from fettle.cli.reference import page

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def test_the_page_of_commands_is_up_to_date() -> None:
    how = "run `python -m fettle.cli.reference > docs/commands.md`"
    assert PAGE.read_text(encoding="utf-8") == page(), how
