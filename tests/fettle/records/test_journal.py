"""Decisions on disk: they survive a restart, and nothing that is wrong there does harm."""

from pathlib import Path

import msgspec
import pytest

from fettle.records import Journal
from fettle.records.log import FILE
from tests.fettle.records.building import decision


def lines(*decisions: object) -> list[bytes]:
    return [msgspec.json.encode(one) for one in decisions]


def test_what_was_appended_is_read_by_the_next_process(tmp_path: Path) -> None:
    written = [decision("a", reasons={"NodeHeld": 2}), decision("b")]
    Journal(tmp_path, 2**20).append(lines(*written))
    assert Journal(tmp_path, 2**20).load() == written


def test_lines_that_cannot_be_read_are_left_out_and_counted(tmp_path: Path) -> None:
    a, b = decision("a"), decision("b")
    broken = [b"{", b"\xff\xfe", b"[]", b'{"id": 1}', b"", b"[" * 5000]
    first, second = lines(a, b)
    (tmp_path / FILE).write_bytes(b"\n".join([first, *broken, second, first[:20]]))
    journal = Journal(tmp_path, 2**20)
    assert journal.load() == [a, b]
    assert "6 lines could not be read" in " ".join(journal.notes())


def test_a_line_that_a_dying_process_left_in_part_spoils_only_itself(tmp_path: Path) -> None:
    a, b = decision("a"), decision("b")
    first, second = lines(a, b)
    (tmp_path / FILE).write_bytes(first + b"\n" + second[:30])
    Journal(tmp_path, 2**20).append([second])
    assert Journal(tmp_path, 2**20).load() == [a, b]


def test_a_folder_that_cannot_be_written_is_a_note_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "absent", tmp_path / "file"):
        journal = Journal(folder, 2**20)
        assert journal.load() == []
        assert not journal.append(lines(decision()))
        journal.rewrite(lines(decision()))
        assert "cannot be written" in " ".join(journal.notes())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_a_full_disk_is_not_told_to_be_made_writable(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/dev/full")
    journal = Journal(tmp_path, 2**20)
    assert not journal.append([b"{}"])
    (note,) = journal.notes()
    assert "No space left on device; free some space there, or name another folder" in note


def test_without_a_folder_it_says_that_a_restart_forgets() -> None:
    journal = Journal(None, 2**20)
    assert journal.append(lines(decision()))
    assert "in memory only" in journal.notes()[0]


def test_a_file_that_grew_too_long_is_written_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 2000)
    one = decision()
    while not journal.too_long:
        journal.append(lines(one))
    journal.rewrite(lines(one))
    assert Journal(tmp_path, 2000).load() == [one]
    assert (tmp_path / FILE).stat().st_size < 2000
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("size", [0, 1])
def test_an_empty_file_is_fine(tmp_path: Path, size: int) -> None:
    (tmp_path / FILE).write_bytes(b"\n" * size)
    journal = Journal(tmp_path, 2000)
    assert journal.load() == []
    journal.append(lines(one := decision()))
    assert Journal(tmp_path, 2000).load() == [one]
