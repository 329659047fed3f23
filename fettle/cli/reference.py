"""Generates docs/commands.md from the commands:
`python -m fettle.cli.reference > docs/commands.md`.
"""

from collections.abc import Iterator

import click

from fettle.cli.commands import SHELLS, main

HEAD = """# Commands

<!-- Made by `python -m fettle.cli.reference > docs/commands.md`; a test checks it. -->

What each command and flag means, as `--help` says it. [Without a server](without-a-server.md) says
what commands read where none is named, [JSON](explain-json.md) what `--output json` means.

Output behind `| head` ends without a word, with status 141. Colours are for terminals; `NO_COLOR=1`
takes them away.

Commands and flags are completed in a shell by one line in its configuration:

```sh
{shells}
```
"""
WIDTH = 100


def page() -> str:
    """The whole of docs/commands.md."""
    parts = [HEAD.format(shells="\n".join(SHELLS.values()))]
    for path, command in _commands(main, ("fettle",)):
        context = click.Context(
            command, info_name=" ".join(path), terminal_width=WIDTH, **main.context_settings
        )
        heading = "##" if len(path) <= 2 else "###"
        parts.append(f"{heading} {' '.join(path)}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in sorted(command.commands.items()):
            yield from _commands(each, (*path, name))


if __name__ == "__main__":
    print(page(), end="")
