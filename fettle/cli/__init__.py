"""The command line: `fettle`, and the same program as `kubectl fettle`."""

from fettle.cli.commands import main

__all__ = ["main"]
