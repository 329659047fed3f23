"""By which token the commands say who you are: the one that you give, else your kubeconfig's. If it
has none, as kubeadm's has only a certificate, one is asked for that lives for ten minutes, of a
ServiceAccount that may read what Fettle shows."""

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fettle.model import FettleError

if TYPE_CHECKING:  # heavy, and mostly not needed
    from fettle.client import Session

READER = "fettle-reader"
"""The ServiceAccount of `deploy/rbac/readers.yaml`."""
READER_NAMESPACE = "fettle-system"
LIVES_S = 600
_META = "fettle.token"


class NoToken(FettleError):
    """There is no token that can be sent."""


def take_file(context: click.Context, _parameter: click.Parameter, given: Path | None) -> None:
    """Read the file of `--token-file`; raises BadParameter."""
    if given is None:
        return
    try:
        token = given.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{given} cannot be read: {error}") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.BadParameter(f"{given} holds no token")
    context.meta[_META] = token
    context.meta["--token-file"] = given  # for hints


def given() -> str:
    """That of `--token-file`, else that in FETTLE_TOKEN; "" if none was given."""
    context = click.get_current_context(silent=True)
    of_file: str = context.meta.get(_META, "") if context is not None else ""
    return of_file or os.environ.get("FETTLE_TOKEN", "").strip()


@cache
def of_cluster(asked: str) -> str:
    """That of the kubeconfig's user, or of the pod's account; `asked` is how a server asked for
    one. Raises NoToken."""
    return asyncio.run(_of_cluster(asked))


async def _of_cluster(asked: str) -> str:
    from fettle.client import Session
    from fettle.model import NoCluster

    try:
        session = await Session.open()
    except NoCluster as error:
        raise NoToken(asked) from error
    async with session:
        return await session.bearer_token() or await _of_reader(session)


async def _of_reader(session: "Session") -> str:
    from fettle.api import api_path, api_server
    from fettle.client import decoded
    from fettle.model import ClusterError, Forbidden, NotFound

    path = api_path(
        "v1", "serviceaccounts", namespace=READER_NAMESPACE, name=READER, subresource="token"
    )
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": LIVES_S},
    }
    without = "your kubeconfig has no token, only a certificate, which cannot be shown to Fettle"
    try:
        raw = await session.create(path, body)
        return decoded(raw, api_server.TokenRequest, "TokenRequest").status.token
    except Forbidden as error:
        raise NoToken(
            f"{without}, and you may not make a token of ServiceAccount {READER_NAMESPACE}/{READER}"
            ": ask for one, and put it into FETTLE_TOKEN or a file for --token-file"
        ) from error
    except NotFound as error:
        raise NoToken(
            f"{without}, and there is no ServiceAccount {READER_NAMESPACE}/{READER}: apply "
            "deploy/rbac/readers.yaml, or put a token into FETTLE_TOKEN"
        ) from error
    except ClusterError as error:
        raise NoToken(f"{without}, and no other could be had: {error}") from error
