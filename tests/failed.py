"""The tests that failed in the last run, for `.ci/run`: `python -m tests.failed` lists them, and
fails if they are none, or too many to be mere chance."""

import json
import sys
from pathlib import Path

MOST = 20
_LAST = Path(".pytest_cache/v/cache/lastfailed")


def main() -> None:
    failed = sorted(json.loads(_LAST.read_text())) if _LAST.exists() else []
    print("\n".join(failed))
    if not failed:
        sys.exit("the run failed, and no test of it")
    if len(failed) > MOST:
        sys.exit(f"{len(failed)} tests failed: more than {MOST} is no chance")


if __name__ == "__main__":
    main()
