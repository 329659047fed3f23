"""`python -m fettle.cli.demo.server PARENT …` is `fettle …`, and ends with the process PARENT that
started it, even where that one is killed and cannot end it. Only Linux tells a process of its
parent's end, and only of one that is still to come.
"""

import ctypes
import os
import signal
import sys

from fettle.cli import main

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv.pop(1)):
        sys.exit("fettle: the demo has ended")
    main(prog_name="fettle")
