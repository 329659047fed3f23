"""Credential plugins of kubeconfigs (`exec`), run as kubectl runs them: the plugin prints an
`ExecCredential` with the credentials. The official client ignores a plugin that fails. Here that is
an error that says what to do.
"""

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from fettle.model import SettingsError

TIMEOUT_S = 60.0
_KILLED_WITHIN_S = 10.0
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_LONGEST = 300


class Credential(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of an ExecCredential: a token, a certificate with its key (PEM), or both."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None

    @property
    def expires_at(self) -> float:
        """Unix seconds; infinite if the plugin gives no expiry."""
        ends = self.expiration_timestamp
        return ends.timestamp() if ends is not None else float("inf")


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    """`exec` of a kubeconfig's user."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: str | None = None

    def __str__(self) -> str:
        return f'the credential plugin "{self.command}"'


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: Credential | None = None


def read(section: Any) -> Plugin:
    """The plugin of an `exec` section; raises SettingsError with the field and what is wrong."""
    try:
        plugin = msgspec.convert(section, Plugin)
    except msgspec.ValidationError as error:
        raise SettingsError(f"exec of the user: {error}") from error
    if plugin.api_version not in _VERSIONS:
        raise SettingsError(
            f"{plugin} uses {plugin.api_version}; set apiVersion to {_VERSIONS[0]}, "
            "or to the version that the plugin's newest release supports"
        )
    if plugin.interactive_mode == "Always":
        raise SettingsError(f"{plugin} requires a terminal (interactiveMode: Always); use another")
    return plugin


async def run(
    plugin: Plugin, folder: Path, cluster: Mapping[str, Any], timeout_s: float = TIMEOUT_S
) -> Credential:
    """The credentials that the plugin returns; raises SettingsError.

    `folder` is the kubeconfig's, `cluster` is its section about the server.
    """
    try:
        async with asyncio.timeout(timeout_s):
            code, output, errors = await _output(plugin, folder, cluster)
    except TimeoutError as error:
        raise SettingsError(
            f"{plugin} did not answer within {timeout_s:g} s; run `{_line(plugin)}` to see why"
        ) from error
    except OSError as error:
        hint = f" ({_one_line(plugin.install_hint)})" if plugin.install_hint else ""
        raise SettingsError(
            f"{plugin} cannot be run: {error.strerror or error}; "
            f"install it, or put it on Fettle's PATH{hint}"
        ) from error
    if code:
        raise SettingsError(
            f"{plugin} exited with code {code}: {_one_line(errors) or 'no error output'}; "
            f"run `{_line(plugin)}` to see why; logging in again often helps"
        )
    return _credential(plugin, output)


async def _output(
    plugin: Plugin, folder: Path, cluster: Mapping[str, Any]
) -> tuple[int, bytes, str]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        spec["cluster"] = dict(cluster)
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    process = await asyncio.create_subprocess_exec(
        _program(plugin.command, folder),
        *(plugin.args or ()),
        env={
            **os.environ,
            **{variable.name: variable.value for variable in plugin.env or ()},
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its children too
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_WITHIN_S):
                await process.wait()  # else it stays a zombie with open pipes
        raise
    return process.returncode or 0, output, errors.decode("utf-8", "replace")


def _program(command: str, folder: Path) -> str:
    """A relative path starts at the kubeconfig's folder; a mere name is looked up on the PATH."""
    return str(folder / command) if os.sep in command else command


def _credential(plugin: Plugin, output: bytes) -> Credential:
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(
            f"{plugin} did not return a valid ExecCredential ({error}); "
            f"run `{_line(plugin)}` to see it"
        ) from error
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        raise SettingsError(
            f"{plugin} returned {answer.kind or 'no kind'} {answer.api_version}, but the "
            f"kubeconfig says {plugin.api_version}; set its apiVersion to the plugin's"
        )
    found = answer.status or Credential()
    if bool(found.client_certificate_data) != bool(found.client_key_data):
        raise SettingsError(f"{plugin} returned a certificate without its key, or only a key")
    if not found.token and not found.client_certificate_data:
        raise SettingsError(
            f"{plugin} returned neither a token nor a certificate; run `{_line(plugin)}` to see it"
        )
    return found


def _line(plugin: Plugin) -> str:
    return _one_line(shlex.join([plugin.command, *(plugin.args or ())]))


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"
