"""Completion in real shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPLETED = {
    "bash": """
        source <(fettle completion bash)
        COMP_WORDS=(fettle {words}) COMP_CWORD={at}
        _fettle_completion fettle
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """,
    "zsh": """
        autoload -Uz compinit && compinit -D -u
        source <(fettle completion zsh)
        [[ $_comps[fettle] == _fettle_completion ]] || exit 3
        compdef() {{ : }}
        compadd() {{ for one in "$@"; do print -r -- "$one"; done }}
        _describe() {{ local listed=$argv[-2]; print -rl -- "${{(@P)listed}}" }}
        words=(fettle {words}) CURRENT=$(({at} + 1))
        _fettle_completion
    """,
    "fish": """
        fettle completion fish | source
        complete -C 'fettle {words}'
    """,
}


@pytest.mark.parametrize("shell", COMPLETED)
@pytest.mark.parametrize(
    ("words", "found"),
    [("dev", "devices"), ("explain rea", "reason"), ("devices --sel", "--selector")],
)
def test_each_shell_completes_commands_and_flags(
    shell: str, words: str, found: str, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = COMPLETED[shell].format(words=words, at=len(words.split()))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    flags = {"bash": ("--norc",), "zsh": ("-f",), "fish": ("--no-config",)}[shell]
    told = subprocess.run(
        [shell, *flags, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)},
    )
    assert told.returncode == 0, told.stderr
    words_told = {line.split("\t")[0].partition(":")[0] for line in told.stdout.splitlines()}
    plain = {word.removeprefix("plain,") for word in words_told}
    assert found in plain, (told.stdout, told.stderr)
    assert "serve" not in plain
