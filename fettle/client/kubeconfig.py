"""Reads kubeconfigs: which cluster, and who we are there. The official client merges the files and
loads the credentials. Before, the fields get their types, embedded keys go into memory, and `exec`
and `as` are made of what client-go makes of them. Contacts no server, except to renew an id-token.
"""

import base64
import re
import ssl
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config_from_dict
from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigMerger

from fettle.client import exec_plugins
from fettle.client.key_files import key_file
from fettle.config import ListenAddress

BROKEN = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    # The official client lets these through for a file that does not have a kubeconfig's structure.
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a kubeconfig raises, besides SettingsError."""
_LONGEST = 100
_PASSWORD = re.compile(r"(://)[^/@]*@")
"""The user and password in a URL."""
_ALLOWED_IN_NAMES = "!#$&'*+-.^_`|~"
"""What a header's name may hold besides letters and digits, except for the % of escapes."""


class KubeConfig(NamedTuple):
    """The current context, loaded. `headers` go along with every request; `expires_at`: when the
    credentials end, in Unix seconds, infinite if that is not known."""

    configuration: Any
    headers: list[tuple[str, str]]
    namespace: str
    expires_at: float
    user: str
    certificate: bytes = b""
    """Of the client, as PEM."""


class Chosen(NamedTuple):
    """What is chosen as kubectl's flags choose it: another `context` than the current one, and
    another user to act as than the kubeconfig's (`acts_as`), in which groups."""

    context: str = ""
    acts_as: str = ""
    groups: tuple[str, ...] = ()


AS_IT_STANDS = Chosen()


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str
    namespace: str | None = None


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    auth_provider: dict[str, Any] | None = None
    exec: dict[str, Any] | None = None
    acts_as: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


_Section = TypeVar("_Section", _Context, _Cluster, _User)


async def load(paths: str, files: ExitStack, chosen: Chosen = AS_IT_STANDS) -> KubeConfig:
    """Load one file, or several joined as in $KUBECONFIG; raises SettingsError, or one of BROKEN.

    `files` holds the certificates and keys that are embedded in it, as files. Close it once a
    client has read them.
    """
    merged = KubeConfigMerger(paths).config
    context = _read(_context(merged, chosen.context)["context"], _Context)
    its_cluster = merged["clusters"].get_with_name(context.cluster)["cluster"]
    its_user = merged["users"].get_with_name(context.user)["user"]
    cluster, user = _read(its_cluster, _Cluster), _read(its_user, _User)
    check_url("server", cluster.server, "https://10.0.0.1:6443")
    check_url("proxy-url", cluster.proxy_url, "http://proxy:3128")
    if chosen.acts_as:
        user = msgspec.structs.replace(user, acts_as=chosen.acts_as)
    if chosen.groups:
        user = msgspec.structs.replace(user, as_groups=[*chosen.groups])
    headers = _impersonation_headers(user)
    place = {
        "server": cluster.server,
        "certificate-authority": _file("certificate-authority", its_cluster, files),
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "tls-server-name": cluster.tls_server_name,
        "proxy-url": cluster.proxy_url,
    }
    identity, expires_at = await _identity(user, its_user, its_cluster, files)
    configuration = await _loaded(place, identity)
    namespace, certificate = context.namespace or "", _certificate(configuration)
    return KubeConfig(configuration, headers, namespace, expires_at, context.user, certificate)


def _certificate(configuration: Any) -> bytes:
    return Path(configuration.cert_file).read_bytes() if configuration.cert_file else b""


def _context(merged: ConfigNode, chosen: str) -> ConfigNode:
    if not chosen:
        return merged["contexts"].get_with_name(merged["current-context"])
    found = merged["contexts"].get_with_name(chosen, safe=True)
    if found is None:
        there = ", ".join(_shown(one["name"]) for one in merged["contexts"].value)
        raise ConfigException(f"it has no context {_shown(chosen)}; it has: {there}")
    return found


def _read(node: ConfigNode, section: type[_Section]) -> _Section:
    """A section whose fields have the types that client-go demands."""
    try:
        return msgspec.convert(node.value, section)
    except msgspec.ValidationError as error:
        of = section.__name__.strip("_").lower()
        raise ConfigException(f"in the {of} of its current context: {error}") from error


async def _identity(
    user: _User, node: ConfigNode, cluster: ConfigNode, files: ExitStack
) -> tuple[dict[str, Any], float]:
    """Of several credentials those that client-go takes, in fields that the official client reads;
    and when they end, as in `KubeConfig`."""
    certificate = _file("client-certificate", node, files)
    found = {"client-certificate": certificate, "client-key": _file("client-key", node, files)}
    if user.token_file:
        return found | {"tokenFile": str(_folder(node) / user.token_file)}, inf
    if user.token:
        return found | {"token": user.token}, inf
    if user.username:
        return found | {"username": user.username, "password": user.password or ""}, inf
    if user.auth_provider:
        return found | {"auth-provider": user.auth_provider}, inf
    if user.exec is None or certificate:
        return found, inf
    # The official client goes on without credentials if a plugin fails, and waits for ever.
    answer = await exec_plugins.run(exec_plugins.read(user.exec), _folder(node), cluster.value)
    found = {"token": answer.token}
    if answer.client_certificate_data:
        found["client-certificate"] = _embedded(answer.client_certificate_data.encode(), files)
        found["client-key"] = _embedded(answer.client_key_data.encode(), files)
    return found, answer.expires_at


async def _loaded(cluster: dict[str, Any], user: dict[str, Any]) -> Any:
    """The official client's configuration for a cluster and a user."""
    configuration = Configuration(host="")
    config = {
        "clusters": [{"name": "its", "cluster": _given(cluster)}],
        "users": [{"name": "its", "user": _given(user)}],
        "contexts": [{"name": "its", "context": {"cluster": "its", "user": "its"}}],
        "current-context": "its",
    }
    try:
        await load_kube_config_from_dict(config, client_configuration=configuration)
    except (*BROKEN, aiohttp.ClientError) as error:
        if "auth-provider" not in user:
            raise
        # The texts of other errors may contain secrets.
        why = f" ({error})" if isinstance(error, OSError) else ""
        raise ConfigException(
            f"auth-provider of the user gives no token{why}; "
            "renew it with kubectl, or use exec with a credential plugin"
        ) from error
    if token := configuration.api_key.get("BearerToken"):
        configuration.api_key["BearerToken"] = token.strip()  # a token file may end with a newline
    _check(configuration)
    return configuration


def _given(section: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in section.items() if value is not None}


def _check(configuration: Any) -> None:
    """Check what would only fail with the first request, or ask for a password on the terminal."""
    if not configuration.host:
        raise ConfigException("the cluster of its current context has no server")
    if token := configuration.api_key.get("BearerToken", ""):
        if not token.isprintable():
            raise ConfigException("its token contains a non-printable character")
        server = urlsplit(configuration.host)
        if server.scheme != "https" and not ListenAddress(server.hostname or "", 0).loopback:
            raise ConfigException(
                f"server {_shown(configuration.host)} must be https, or on loopback: whoever is on "
                "the way of plain HTTP could read the user's token or password"
            )
    certificate, key = configuration.cert_file, configuration.key_file
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if certificate or key:
            context.load_cert_chain(certificate, key, password="")
    except (OSError, TypeError, ValueError) as error:
        raise ConfigException(
            "certificate-authority must hold PEM certificates, and client-certificate and "
            f"client-key a PEM certificate and its unencrypted key ({error})"
        ) from error


def _file(field: str, node: ConfigNode, files: ExitStack) -> str | None:
    """The file that a field names, or one with what is embedded beside it."""
    if data := node.value.get(f"{field}-data"):
        try:
            return _embedded(base64.b64decode("".join(data.split()), validate=True), files)
        except ValueError as error:
            raise ConfigException(f"{field}-data is not valid base64 ({error})") from error
    named = node.value.get(field)
    return str(_folder(node) / named) if named else None


def _embedded(content: bytes, files: ExitStack) -> str:
    """The official client would leave keys on disk, and a container may have none to write to."""
    return files.enter_context(key_file(content))


def _folder(node: ConfigNode) -> Path:
    """That of the kubeconfig which has this section."""
    return Path(node.path).absolute().parent


def check_url(field: str, url: str | None, example: str) -> None:
    """Raise ConfigException where a field that should hold a server's URL does not; it may be
    empty."""
    try:
        parts = urlsplit(url or example)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not (url or "").isprintable():
        raise ConfigException(f"{field} {_shown(url)} is not a valid URL, such as {example}")


def _impersonation_headers(user: _User) -> list[tuple[str, str]]:
    """The headers that client-go sends with every request. A name may come several times."""
    groups, extra = user.as_groups or [], user.as_user_extra or {}
    if not user.acts_as:
        if user.as_uid or groups or extra:
            raise ConfigException(
                "the user has as-uid, as-groups or as-user-extra without as (whom to impersonate)"
            )
        return []
    found = [("Impersonate-User", user.acts_as)]
    if user.as_uid:
        found.append(("Impersonate-Uid", user.as_uid))
    found += (("Impersonate-Group", group) for group in groups)
    for key, values in extra.items():
        name = f"Impersonate-Extra-{quote(key, safe=_ALLOWED_IN_NAMES)}"
        found += ((name, value) for value in values)
    for name, value in found:
        if not value.isprintable():
            raise ConfigException(f"{name} of its user contains a non-printable character")
    return found


def _shown(value: Any) -> str:
    text = _PASSWORD.sub(r"\1…@", repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
