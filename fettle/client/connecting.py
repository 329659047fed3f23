"""Where the cluster is and who we are there: a kubeconfig or the pod's service account, read by the
official client, which owns their formats and TLS settings. Nothing here contacts a server, except
by a kubeconfig's credential plugin, or to renew an id-token.
"""

import base64
import binascii
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.incluster_config import InClusterConfigLoader
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from fettle import __version__
from fettle.client import impersonating, key_files, kubeconfigs, plugins, proxies
from fettle.model import NoCluster, SettingsError

DEFAULT_NAMESPACE = "fettle-system"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account: `token`, `ca.crt`, `namespace`."""
_SHOWN_ENTRY = re.compile(r"/\{.*\}")
"""Where the official client shows a whole entry of a kubeconfig, credentials and all."""
_READ_TOKEN_EVERY = timedelta(minutes=1)
_BROKEN = (
    config.ConfigException,
    yaml.YAMLError,
    OSError,
    binascii.Error,
    # What the official client lets through for a file that is not shaped like a kubeconfig.
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class ClusterConnection(NamedTuple):
    """The official client, and the namespace we live in or work in by default.

    `authority`: where the certificates that we trust servers by are from, for people.
    `expires_at`: when the credentials end, Unix seconds, as far as it is known beforehand.
    """

    client: Any
    namespace: str
    authority: str
    expires_at: float = float("inf")


async def connect(kubeconfig: Path | None, account: Path | None = None) -> ClusterConnection:
    """The kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config.

    `account` is where to look for the service account, ACCOUNT if it is None.
    """
    if kubeconfig is not None:
        return await _from_files(str(kubeconfig), f"--kubeconfig {kubeconfig}")
    if named := os.environ.get("KUBECONFIG"):
        return await _from_files(named, f"$KUBECONFIG ({named})")
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(account or ACCOUNT)
    home = Path.home() / ".kube" / "config"
    if home.exists():
        return await _from_files(str(home), str(home))
    raise NoCluster(
        f"no cluster to connect to: $KUBECONFIG is not set, {home} does not exist and this is not "
        "a pod; pass --kubeconfig FILE"
    )


async def _from_files(named: str, said: str) -> ClusterConnection:
    """`named` is one path or several, as $KUBECONFIG has them."""
    paths = _paths(named)
    unreadable = [(path, kubeconfigs.unreadable(path)) for path in paths]
    if all(why for _, why in unreadable):
        tried = ", ".join(f"{path} {why}" for path, why in unreadable) or "it is empty"
        raise NoCluster(f"no usable kubeconfig from {said}: {tried}; pass --kubeconfig FILE")
    try:
        with ExitStack() as files:
            return await _read(os.pathsep.join(str(path) for path in paths), files)
    except SettingsError as error:
        raise SettingsError(f"kubeconfig {said}: {error}") from error
    except _BROKEN as error:
        raise SettingsError(f"kubeconfig {said}: {_said(error)}") from error


async def _read(paths: str, files: ExitStack) -> ClusterConnection:
    configuration = Configuration(host="")
    loader = _Loader(KubeConfigMerger(paths).config, files)
    if loader.user is None:
        raise config.ConfigException("its current context has no user that is among its users")
    kubeconfigs.check(loader.cluster, loader.user)
    headers = impersonating.headers(loader.user)
    await loader.load_and_set(configuration)
    if token := configuration.api_key.get("BearerToken"):
        configuration.api_key["BearerToken"] = token.strip()  # of a file that ends with a line
    namespace = loader.current_context["context"].get("namespace")
    _check(configuration)
    kubeconfigs.check_certificates(configuration, loader.user)
    client = _client(configuration, headers)
    if not isinstance(namespace, str) or not namespace:
        namespace = DEFAULT_NAMESPACE
    authority = "certificate-authority in the kubeconfig"
    return ClusterConnection(client, namespace, authority, loader.expires_at)


class _Loader(KubeConfigLoader):  # type: ignore[misc]
    """Reads kubeconfigs, and runs their credential plugins itself. `files` are those that the
    certificates and keys in it are read from; the official client would leave them on disk.
    """

    expires_at = float("inf")

    def __init__(self, kubeconfig: Any, files: ExitStack) -> None:
        super().__init__(config_dict=kubeconfig, config_base_path=None)
        self._files = files

    @property
    def cluster(self) -> Any:
        return self._cluster.value

    @property
    def user(self) -> Any:
        return getattr(self._user, "value", self._user)

    @property
    def _folder(self) -> Path:
        """Where the kubeconfig is that the user is in."""
        return Path(self._get_base_path(self._user.path))

    async def _load_authentication(self) -> None:
        """Of several credentials, those that client-go takes; a client certificate is loaded
        with the cluster.
        """
        user = self.user
        if not user:
            return
        if not isinstance(user, Mapping):
            raise config.ConfigException("the user of its current context has no fields")
        if user.get("token") or user.get("tokenFile"):
            self.token = f"Bearer {self._user_token(user)}"
        elif name := user.get("username"):
            pair = f"{name}:{user.get('password') or ''}".encode(errors="replace")
            self.token = f"Basic {base64.b64encode(pair).decode()}"
        elif user.get("auth-provider") is not None:
            await self._load_id_token()
        elif user.get("exec") is not None and not kubeconfigs.has(user, "client-certificate"):
            await self.load_from_exec_plugin()

    def _user_token(self, user: Mapping[str, Any]) -> Any:
        """That of its file, if there is one."""
        token = user.get("token")
        if not user.get("tokenFile"):
            return token
        file = self._folder / user["tokenFile"]
        try:
            read = file.read_text(encoding="utf-8", errors="surrogateescape").strip()
        except OSError:
            if token:
                return token
            raise
        if not read and not token:
            raise config.ConfigException(f"the user's tokenFile {file} is empty")
        return read or token

    async def _load_id_token(self) -> None:
        try:
            await self._load_oid_token()
        except (*_BROKEN, aiohttp.ClientError) as error:
            # Other texts may hold what is secret.
            why = f" ({error})" if isinstance(error, OSError) else ""
            raise config.ConfigException(
                f"auth-provider {kubeconfigs.OIDC!r} of the user gives no id-token{why}; "
                "renew it with kubectl, or use exec with a credential plugin"
            ) from error

    async def load_from_exec_plugin(self) -> bool:
        plugin = plugins.read(self.user["exec"])
        found = await plugins.run(plugin, self._folder, self._cluster.value)
        self.expires_at = found.expires_at
        if found.token:
            self.token = f"Bearer {found.token}"
        if found.client_certificate_data:
            self.cert_file = self._file(found.client_certificate_data.encode())
            self.key_file = self._file(found.client_key_data.encode())
        return True

    def _load_cluster_info(self) -> None:
        for section in (self.cluster, self.user):
            for field in kubeconfigs.FILES:
                if isinstance(section, dict) and section.get(f"{field}-data"):
                    data = section.pop(f"{field}-data")
                    section[field] = self._file(base64.b64decode(data))
        super()._load_cluster_info()

    def _file(self, content: bytes) -> str:
        return self._files.enter_context(key_files.written(content))


def _check(configuration: Any) -> None:
    """Raises ConfigException for what would only fail with the first request."""
    if not configuration.host:
        raise config.ConfigException("the cluster of its current context has no server")
    token = configuration.api_key.get("BearerToken")
    if token and not str(token).isprintable():
        raise config.ConfigException("its token contains a non-printable character")


def _paths(named: str) -> list[Path]:
    return [Path(part).expanduser() for part in named.split(os.pathsep) if part]


def _in_cluster(account: Path) -> ClusterConnection:
    configuration = Configuration()
    try:
        _AccountLoader(account / "token", account / "ca.crt").load_and_set(configuration)
        configuration.ssl_ca_cert = str(account / "ca.crt")
        client = _client(configuration)
    except _BROKEN as error:
        raise SettingsError(
            f"the pod's service account in {account} cannot be used ({_said(error)}); "
            "set automountServiceAccountToken, or pass --kubeconfig FILE"
        ) from error
    try:
        namespace = (account / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        namespace = ""
    authority = f"the service account's {account / 'ca.crt'}"
    return ClusterConnection(client, namespace or DEFAULT_NAMESPACE, authority)


class _AccountLoader(InClusterConfigLoader):  # type: ignore[misc]
    """Reads a service account, and its token again and again; the file may end with a line."""

    def _read_token_file(self) -> None:
        file: Path = self._token_filename
        token = file.read_text(encoding="utf-8", errors="surrogateescape").strip()
        if not token:
            raise config.ConfigException(f"{file} is empty")
        if not token.isprintable():
            raise config.ConfigException(f"{file} contains a non-printable character")
        self.token = f"Bearer {token}"
        self.token_expires_at = datetime.now() + _READ_TOKEN_EVERY


def _client(configuration: Any, headers: Sequence[tuple[str, str]] = ()) -> Any:
    """`headers` go along with every request."""
    configuration.client_session_kwargs = {"trust_env": False, "headers": headers}
    configuration.proxy = configuration.proxy or proxies.of_environment(configuration.host)
    # As kubectl verifies: from Python 3.13 on, certificates must also name their authority's key,
    # which those of many clusters do not.
    configuration.disable_strict_ssl_verification = True
    client = ApiClient(configuration)
    client.user_agent = f"fettle/{__version__}"
    return client


def _said(error: Exception) -> str:
    text = " ".join(str(error).encode("utf-8", "replace").decode().split())
    text = _SHOWN_ENTRY.sub("", text)
    known = isinstance(error, config.ConfigException | yaml.YAMLError | OSError)
    shape = "it is not a kubeconfig with clusters, users, contexts and current-context"
    return text if known else shape
