"""Where the cluster is and who we are there: a kubeconfig or the pod's service account, read by the
official client, which owns their formats, credentials plug-ins and TLS settings. Nothing here
contacts a server, except what a kubeconfig's credentials plug-in does.
"""

import binascii
import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from fettle import __version__
from fettle.errors import SettingsError

DEFAULT_NAMESPACE = "fettle-system"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_BROKEN = (
    config.ConfigException,
    yaml.YAMLError,
    OSError,
    binascii.Error,
    # What the official client lets through for a file that is not shaped like a kubeconfig.
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)


class Connection(NamedTuple):
    """The official client, and the namespace we live in or work in by default."""

    client: Any
    namespace: str


async def connect(kubeconfig: Path | None) -> Connection:
    """The kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config."""
    if kubeconfig is not None:
        return await _from_files(str(kubeconfig), f"--kubeconfig {kubeconfig}")
    if named := os.environ.get("KUBECONFIG"):
        return await _from_files(named, f"$KUBECONFIG ({named})")
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster()
    home = Path.home() / ".kube" / "config"
    if home.exists():
        return await _from_files(str(home), str(home))
    raise SettingsError(
        f"no cluster to talk to: $KUBECONFIG is not set, {home} does not exist and this is no pod; "
        "pass --kubeconfig FILE, or --snapshot DIR to run without a cluster"
    )


async def _from_files(named: str, said: str) -> Connection:
    """`named` is one path or several, as $KUBECONFIG has them."""
    paths = _paths(named)
    if not any(path.is_file() for path in paths):
        raise SettingsError(
            f"no kubeconfig: {said} is not there (tried {', '.join(str(p) for p in paths)}); "
            "pass --kubeconfig FILE, or --snapshot DIR to run without a cluster"
        )
    configuration = Configuration(host="")
    try:
        loader = await config.load_kube_config(
            os.pathsep.join(str(path) for path in paths),
            client_configuration=configuration,
            persist_config=False,
        )
        namespace = loader.current_context["context"].get("namespace")
        if not configuration.host:
            raise config.ConfigException("the cluster of its current context has no server")
        client = _client(configuration)
    except _BROKEN as error:
        raise SettingsError(f"kubeconfig {said}: {_said(error)}") from error
    if not isinstance(namespace, str) or not namespace:
        namespace = DEFAULT_NAMESPACE
    return Connection(client, namespace)


def _paths(named: str) -> list[Path]:
    return [Path(part).expanduser() for part in named.split(os.pathsep) if part]


def _in_cluster() -> Connection:
    configuration = Configuration()
    try:
        config.load_incluster_config(configuration)
        client = _client(configuration)
    except _BROKEN as error:
        raise SettingsError(
            f"the pod's service account in {_ACCOUNT} cannot be used ({_said(error)}); "
            "set automountServiceAccountToken, or pass --kubeconfig FILE"
        ) from error
    try:
        namespace = (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        namespace = ""
    return Connection(client, namespace or DEFAULT_NAMESPACE)


def _client(configuration: Any) -> Any:
    client = ApiClient(configuration)
    client.user_agent = f"fettle/{__version__}"
    return client


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())
    known = isinstance(error, config.ConfigException | yaml.YAMLError | OSError)
    return text if known else f"it is not shaped like a kubeconfig ({type(error).__name__}: {text})"
