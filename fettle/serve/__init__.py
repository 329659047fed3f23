"""`fettle serve`: a small process that stays, and one that serves. `serving.py` makes the parts of
the latter, runs them, and stops them in order. `fettle ui` does with the latter alone."""

import sys

from fettle.model import FettleError
from fettle.serve.channel import inherited
from fettle.serve.options import OwnPage, ServeOptions, browse_token
from fettle.serve.staying import stay

__all__ = ["OwnPage", "ServeOptions", "serve", "show"]


def serve(options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT; raises FettleError if serving cannot start or continue."""
    channel = inherited()
    if channel is None:
        browse_token()  # for the process that serves and its successors
        stay([sys.executable, "-m", "fettle", *options.arguments()])
        return
    from fettle.serve.serving import run  # heavy, and of no use to the process that stays

    try:
        run(options, channel)
    except FettleError as error:
        channel.send("failed", str(error))
        sys.exit(1)


def show(options: ServeOptions) -> None:
    """Show somebody their own page until SIGTERM or SIGINT; raises FettleError if that cannot
    start or continue."""
    from fettle.serve.serving import run_own  # heavy

    run_own(options)
