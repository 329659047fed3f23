"""Which modules the contract about sizes finds, in packages made for the test."""

from pathlib import Path
from typing import Any

import grimp
import pytest

from tests.contracts import SizesContract

USER = "from {room}.small import name\n\nname\n"


def broken(folder: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> list[str]:
    """What is wrong with a room of these modules, of which none may have over ten lines. A package
    is imported but once, so each room has a name of its own."""
    room = f"room_{folder.name}"
    (folder / room).mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (folder / room / f"{name}.py").write_text(text.format(room=room))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    options: dict[str, Any] = {"smallest": "3", "largest": "10", "larger": []}
    contract = SizesContract("sizes", {}, options)
    found = contract.check(grimp.build_graph(room, cache_dir=None), verbose=False)
    return [one.replace(f"{room}.", "") for one in found.metadata["broken"]]


def test_a_small_module_with_one_user_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = broken(tmp_path, monkeypatch, small="name = 1\n", user=USER)
    assert found == ["small (1 lines) has one user, user: move it there"]


@pytest.mark.parametrize(
    ("small", "others"),
    [
        ("name = 1\n", {"user": USER, "other": USER}),
        ("name = 1\n" * 3, {"user": USER}),
        ("name = 1\n", {"user": USER + "\n" * 7}),
        ("name = 1\n", {"user": "from {room} import small\n\nsmall.name\n"}),
        ("name = 1\n", {"user": "def use():\n    from {room}.small import name\n    name\n"}),
        ("name = 1\n", {"__init__": "from {room}.small import name\n"}),
        ("name = 1\n", {}),
    ],
    ids=["two users", "not small", "large together", "namespace", "late", "face", "no user"],
)
def test_a_small_module_stays_with(
    small: str, others: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert broken(tmp_path, monkeypatch, small=small, **others) == []


def test_a_large_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = broken(tmp_path, monkeypatch, big="name = 1\n" * 11)
    assert found == ["big has 11 lines, of 10: part it if it holds two ideas"]
