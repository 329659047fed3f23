"""docs/commands.md is what the commands say of themselves."""

from collections.abc import Iterator
from pathlib import Path

import click

from fettle.cli.commands import ENVIRONMENT, main
from fettle.cli.reference import page

PAGE = Path(__file__).parents[3] / "docs" / "commands.md"


def test_the_page_of_commands_is_up_to_date() -> None:
    how = "run `python -m fettle.cli.reference > docs/commands.md`"
    assert PAGE.read_text(encoding="utf-8") == page(), how


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
