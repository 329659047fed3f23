"""Asks again and again, for `--watch`: redraws on a terminal; elsewhere prints what changed."""

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO

import click

from fettle.model import FettleError

EVERY_S, EVERY_DIRECT_S = 2.0, 30.0
"""How long after an answer of a server, and of a cluster that is read, the next one is asked
for."""
INTERRUPTED = 130
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def watch(show: Callable[[], object], every_s: float, rounds: int | None = None) -> None:
    """Print what `show` prints, again and again; Ctrl-C ends it. An answer that fails is said once
    it could be had before. `rounds`: how often; None: for ever."""
    last, done = "", 0
    try:
        while rounds is None or done < rounds:
            try:
                if sys.stdout.isatty():
                    click.echo(_CLEAR, nl=False)
                    show()
                else:
                    with redirect_stdout(StringIO()) as held:
                        show()
                    if (told := held.getvalue()) != last:
                        click.echo(("\n" if last else "") + told, nl=False)
                        last = told
                sys.stdout.flush()
            except FettleError as error:
                if not done:
                    raise
                click.echo(f"fettle: {error}", err=True)
            done += 1
            if rounds is None or done < rounds:
                time.sleep(every_s)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
