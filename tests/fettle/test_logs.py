"""The log: what its lines look like, whenever structlog is loaded."""

import json
import subprocess
import sys

LATE = """\
import sys
from fettle import logs
from fettle.logs import Logger
log = Logger("x")
logs.configure("warning")
assert "structlog" not in sys.modules
log.info("too little")
log.bind(pool="a").warning("enough", node="b")
"""


def test_the_first_line_loads_the_library_and_takes_the_form_that_was_asked_for() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=True
    )
    (line,) = ran.stderr.splitlines()
    said = json.loads(line)
    assert {key: said[key] for key in ("event", "level", "node", "pool")} == {
        "event": "enough",
        "level": "warning",
        "node": "b",
        "pool": "a",
    }
