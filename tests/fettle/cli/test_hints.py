"""Commands that other commands and the demo tell you to type: each can be typed as it stands."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fettle.cli.commands import main
from fettle.cli.demo import story
from fettle.cli.demo.served import Served
from fettle.cli.sources import typed

COMMANDS = (
    "status",
    "devices",
    "devices --all",
    "pods",
    "top nodes",
    "explain pod ml/serving-0",
    "explain pod ml/serving-0 --evidence",
    "explain node hgx-05",
    "explain node dra-04",
    "explain device dra-02/gpu-0",
    "explain policy training",
    "what-if ml/serving-0 --policy training",
)
WRONG = (
    "explain device hgx-01/nope",
    "explain node nope",
    "explain pod ml/nope",
    "explain pod ml/serving-0 --node nope",
)
CHANGES = ("hold", "release")
"""What changes a cluster is not tried."""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "a snapshot"
    folder.mkdir()
    story.write(folder, datetime.now(UTC))
    return folder


@pytest.fixture(scope="module")
def server(snapshot: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Served(snapshot, tmp_path_factory.mktemp("log") / "log") as served:
        nodes = sorted(f"hgx-0{number}" for number in range(1, 8))
        served.filter(story.plugin_pod("training", 4), nodes)
        yield served.browse


def hints(said: str) -> list[list[str]]:
    """What stands between backquotes and begins with our name, without it."""
    found = " ".join(said.split()).split("`")[1::2]
    return [words[1:] for one in found if (words := shlex.split(one))[:1] == ["fettle"]]


def tried(*commands: str, source: tuple[str, str]) -> list[list[str]]:
    """The hints of these commands, each of which was run. They all say whom to ask."""
    told = []
    for command in commands:
        ended = CliRunner().invoke(main, [*command.split(), *source])
        assert (ended.exit_code == 1) == (command in WRONG), ended.output
        told += hints(ended.output)
    for hint in told:
        if hint[0] in CHANGES:
            continue
        if hint[:2] != ["explain", "reason"]:
            assert hint[-2:] == [*source], hint
        ended = CliRunner().invoke(main, hint)
        assert ended.exit_code == 0, f"{hint}: {ended.output}"
    return told


def test_each_hint_of_a_command_can_be_typed_and_asks_the_same_server(server: str) -> None:
    waiting = ("explain pod ml/training-plugin", "decisions")
    told = tried(*COMMANDS, *WRONG, *waiting, source=("--server", server))
    shown = [" ".join(hint[:4]) for hint in told]
    assert "explain pod ml/training-plugin --evidence" in shown
    assert any(one.startswith("explain device hgx-05/nvidia.com/gpu/") for one in shown)
    assert any(one.startswith("devices --all") for one in shown)


def test_each_hint_of_a_command_can_be_typed_and_reads_the_same_snapshot(snapshot: Path) -> None:
    told = tried(*COMMANDS, *WRONG, source=("--snapshot", str(snapshot)))
    assert ["release", "dra-04"] in told


def shown_by(sentence: str, *given: str) -> str:
    """The sentence as a command with flags would show it."""
    devices = main.commands["devices"]
    with (
        click.Context(main, info_name="fettle") as root,
        devices.make_context("devices", [*given], parent=root),
    ):
        return typed(sentence)


@pytest.mark.parametrize(
    ("given", "sentence", "shown"),
    [
        (
            ("--context", "my prod", "--as", "eve", "--as-group", "a", "--as-group", "b"),
            "`fettle explain node n` says what",
            "`fettle explain node n --context 'my prod' --as eve --as-group a --as-group b` "
            "says what",
        ),
        ((), "`fettle devices` lists them", "`fettle devices` lists them"),
        (("--server", "http://x:1/#t"), "a `fettle rules`!", "a `fettle rules`!"),
        (
            ("--server", "http://x:1/#t"),
            "`fettle decisions`, `fettle nope` and `kubectl drain n`; `fettle devices",
            "`fettle decisions --server 'http://x:1/#t'`, `fettle nope` and `kubectl drain n`; "
            "`fettle devices",
        ),
    ],
)
def test_a_hint_has_the_flags_that_say_whom_to_ask_if_its_command_takes_them(
    given: tuple[str, ...], sentence: str, shown: str
) -> None:
    assert shown_by(sentence, *given) == shown


def test_a_token_file_goes_with_the_server(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    given = ("--server", "http://x:1", "--token-file", str(tmp_path / "token"))
    shown = shown_by("`fettle top`", *given)
    assert shown == f"`fettle top --server http://x:1 --token-file {tmp_path}/token`"


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ("ml/serving-0", "explain pod ml/serving-0"),
        ("hgx-01", "explain node hgx-01"),
        ("gpu.nvidia.com/dra-02/gpu-0", "explain device gpu.nvidia.com/dra-02/gpu-0"),
        ("NodeHeld", "explain reason NodeHeld"),
    ],
)
def test_a_name_without_its_kind_is_answered_with_what_to_type(
    snapshot: Path, given: str, first: str
) -> None:
    source = () if given == "NodeHeld" else ("--snapshot", str(snapshot))
    ended = CliRunner().invoke(main, ["explain", given, *source])
    assert ended.exit_code == 2
    hint = hints(ended.output)[0]
    assert " ".join(hint[:3]) == first
    assert hint[3:] == [*source]
    assert CliRunner().invoke(main, hint).exit_code == 0


def test_what_reads_standard_input_is_not_watched() -> None:
    ended = CliRunner().invoke(main, ["what-if", "-", "--watch"])
    assert ended.exit_code == 2
    assert "standard input ends: name a file" in ended.output


def test_a_slip_in_a_kind_is_not_taken_for_a_name() -> None:
    ended = CliRunner().invoke(main, ["explain", "pods", "ml/x"])
    assert ended.exit_code == 2
    assert "Did you mean 'pod'?" in ended.output


@pytest.mark.parametrize("command", ["devices", "devices --all", "pods"])
def test_a_driver_that_has_no_devices_is_answered_with_those_that_have(
    snapshot: Path, command: str
) -> None:
    given = (*command.split(), "--snapshot", str(snapshot), "--driver")
    ended = CliRunner().invoke(main, [*given, "nvidia.com/gpus"])
    assert ended.exit_code == 2
    said = " ".join(ended.output.split())
    assert "there are no devices of 'nvidia.com/gpus'; near: nvidia.com/gpu" in said
    assert "there are: gpu.nvidia.com, nvidia.com/gpu" in said
    assert CliRunner().invoke(main, [*given, "nvidia.com/gpu"]).exit_code == 0


def test_a_code_of_the_records_that_is_no_reason_is_explained_too() -> None:
    told = CliRunner().invoke(main, ["explain", "reason", "forceDeleted"])
    assert told.exit_code == 0
    assert "ForceDeleted: On a Pod: it was deleted by force" in told.output
    ended = CliRunner().invoke(main, ["explain", "reason", "FTL010"])
    assert ended.exit_code == 2
    assert "rules FTL010" in ended.output
    unknown = CliRunner().invoke(main, ["explain", "reason", "FTL"])
    assert "there is no reason code 'FTL'" in unknown.output
