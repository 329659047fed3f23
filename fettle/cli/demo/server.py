"""`python -m fettle.cli.demo.server` is `fettle`, and ends with the process that started it, even
where that one is killed and cannot end it. Only Linux tells a process of its parent's end.
"""

import ctypes
import signal
import sys

from fettle.cli import main

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    main(prog_name="fettle")
