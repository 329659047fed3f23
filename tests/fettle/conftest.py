"""Fettle served from a snapshot folder, in its own process, as a user starts it."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from fettle.cel import SelectorEngine
from fettle.cli.demo import story
from fettle.cli.demo.served import Served
from fettle.pacing import KeptParts, Pauses, keeping, taking_turns


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[SelectorEngine]:
    """With a worker that all tests of a module share, which must run in the module's loop."""
    engine = SelectorEngine()
    await engine.start()
    yield engine
    await engine.close()


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


@pytest.fixture
def turns_at_each_pause() -> Iterator[None]:
    """Others have their turn at each pause of work in slices."""
    with taking_turns(slice_s=0.0):
        yield


@pytest.fixture
def kept_by() -> Iterator[Callable[[Pauses], KeptParts]]:
    """What is kept after this call is kept with such pauses, until the test ends."""
    before = keeping._PARTS.get()

    def enter(pauses: Pauses) -> KeptParts:
        made = KeptParts(pauses)
        made.enter()
        return made

    yield enter
    keeping._PARTS.set(before)


@pytest.fixture
def parts(kept_by: Callable[[Pauses], KeptParts]) -> KeptParts:
    """Of a process that tries again soon."""
    return kept_by(Pauses(first_s=0.01, longest_s=0.02))
