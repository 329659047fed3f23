"""Fettle served from a snapshot folder, in its own process, as a user starts it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fettle.cli.demo import story
from fettle.cli.demo.served import Served


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A folder with the demo's fleet."""
    folder = tmp_path / "snapshot"
    folder.mkdir()
    story.write(folder, datetime.now(UTC))
    return folder


@pytest.fixture
def served(snapshot: Path, tmp_path: Path) -> Iterator[Served]:
    with Served(snapshot, tmp_path / "log") as fettle:
        yield fettle
