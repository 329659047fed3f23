"""`python -m fettle` is `fettle`."""

from fettle.cli import main

main()
