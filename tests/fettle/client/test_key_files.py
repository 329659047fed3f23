"""Keys as files, which are gone afterwards."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from fettle.client.key_files import key_file


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this process's temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(params=[True, False], ids=["in memory", "on disk"])
def in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system can have files in memory."""
    if not request.param:
        monkeypatch.delattr(os, "memfd_create")
    return bool(request.param)


def test_the_content_can_be_read_again_and_again(in_memory: bool, temporary: Path) -> None:
    with key_file(b"\x00secret") as path:
        assert [Path(path).read_bytes() for _ in range(2)] == [b"\x00secret"] * 2
        assert Path(path).is_file()


def test_no_file_or_descriptor_is_left(in_memory: bool, temporary: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    with key_file(b"secret"):
        assert bool([*temporary.iterdir()]) is not in_memory
    with suppress(ValueError), key_file(b"secret"):
        raise ValueError
    assert not [*temporary.iterdir()]
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_two_files_do_not_mix(in_memory: bool, temporary: Path) -> None:
    with key_file(b"one") as one, key_file(b"two") as two:
        assert (Path(one).read_bytes(), Path(two).read_bytes()) == (b"one", b"two")
