"""Reads kubeconfigs: which cluster, and who we are there. The official client owns the format and
the TLS settings. Here are the checks that it lacks, so that a wrong field is named before the first
request fails, and the credentials that it does not know: `tokenFile`, `exec` and `as`. Contacts no
server, except to renew an id-token.
"""

import base64
import binascii
import re
import ssl
import stat
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

from fettle.client import exec_plugins
from fettle.client.key_files import key_file

BROKEN = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    binascii.Error,
    # The official client lets these through for a file that does not have a kubeconfig's structure.
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading a kubeconfig raises, besides SettingsError."""
_FILES = ("certificate-authority", "client-certificate", "client-key")
"""Fields that name a file. The same field with `-data` holds the content instead."""
_OIDC = "oidc"
"""The only auth-provider that Kubernetes clients still have."""
_REMOVED = {"gcp": "gke-gcloud-auth-plugin", "azure": "kubelogin"}
"""Former auth-providers, and the credential plugins that replaced them."""
_LONGEST = 100
_PASSWORD = re.compile(r"(://)[^/@]*@")
"""The user and password in a URL."""
_ALLOWED_IN_NAMES = "!#$&'*+-.^_`|~"
"""What a header's name may hold besides letters and digits, except for the % of escapes."""


class KubeConfig(NamedTuple):
    """The current context, loaded. `headers` go along with every request; `expires_at`: when the
    credentials end, in Unix seconds, infinite if that is not known."""

    configuration: Any
    headers: Sequence[tuple[str, str]]
    namespace: str
    expires_at: float
    user: str


async def load(paths: str, files: ExitStack) -> KubeConfig:
    """Load one file, or several joined as in $KUBECONFIG; raises SettingsError, or one of BROKEN.

    `files` holds the certificates and keys that are embedded in it, as files. Close it once a
    client has read them.
    """
    configuration = Configuration(host="")
    loader = _Loader(KubeConfigMerger(paths).config, files)
    if loader.user is None:
        raise ConfigException("its current context has no user that is among its users")
    _check(loader.cluster, loader.user)
    headers = _impersonation_headers(loader.user)
    await loader.load_and_set(configuration)
    if token := configuration.api_key.get("BearerToken"):
        configuration.api_key["BearerToken"] = token.strip()  # a token file may end with a newline
    _check_loaded(configuration)
    _check_certificates(configuration, loader.user)
    context = loader.current_context["context"]
    namespace, user = context.get("namespace"), context.get("user")
    namespace = namespace if isinstance(namespace, str) else ""
    return KubeConfig(configuration, headers, namespace, loader.expires_at, str(user or ""))


class _Loader(KubeConfigLoader):  # type: ignore[misc]
    """Reads kubeconfigs, and runs their credential plugins itself. `files` holds the certificates
    and keys that are embedded; the official client would leave them on disk.
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
        """The folder of the kubeconfig that has the user."""
        return Path(self._get_base_path(self._user.path))

    async def _load_authentication(self) -> None:
        """Of several credentials, load those that client-go takes. The client certificate is loaded
        with the cluster.
        """
        user = self.user
        if not user:
            return
        if not isinstance(user, Mapping):
            raise ConfigException("the user of its current context has no fields")
        if user.get("token") or user.get("tokenFile"):
            self.token = f"Bearer {self._user_token(user)}"
        elif name := user.get("username"):
            pair = f"{name}:{user.get('password') or ''}".encode(errors="replace")
            self.token = f"Basic {base64.b64encode(pair).decode()}"
        elif user.get("auth-provider") is not None:
            await self._load_id_token()
        elif user.get("exec") is not None and not _has(user, "client-certificate"):
            await self.load_from_exec_plugin()

    def _user_token(self, user: Mapping[str, Any]) -> Any:
        """The token of the user's file if there is one, else the user's own."""
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
            raise ConfigException(f"the user's tokenFile {file} is empty")
        return read or token

    async def _load_id_token(self) -> None:
        try:
            await self._load_oid_token()
        except (*BROKEN, aiohttp.ClientError) as error:
            # The texts of other errors may contain secrets.
            why = f" ({error})" if isinstance(error, OSError) else ""
            raise ConfigException(
                f"auth-provider {_OIDC!r} of the user gives no id-token{why}; "
                "renew it with kubectl, or use exec with a credential plugin"
            ) from error

    async def load_from_exec_plugin(self) -> bool:
        plugin = exec_plugins.read(self.user["exec"])
        found = await exec_plugins.run(plugin, self._folder, self._cluster.value)
        self.expires_at = found.expires_at
        if found.token:
            self.token = f"Bearer {found.token}"
        if found.client_certificate_data:
            self.cert_file = self._file(found.client_certificate_data.encode())
            self.key_file = self._file(found.client_key_data.encode())
        return True

    def _load_cluster_info(self) -> None:
        for section in (self.cluster, self.user):
            for field in _FILES:
                if isinstance(section, dict) and section.get(f"{field}-data"):
                    data = section.pop(f"{field}-data")
                    section[field] = self._file(base64.b64decode(data))
        super()._load_cluster_info()

    def _file(self, content: bytes) -> str:
        return self._files.enter_context(key_file(content))


def _check(cluster: Any, user: Any) -> None:
    """Check the fields before any credentials are requested. A section that is not a mapping is
    reported elsewhere."""
    cluster = cluster if isinstance(cluster, Mapping) else {}
    user = user if isinstance(user, Mapping) else {}
    check_url("server", cluster.get("server"), "https://10.0.0.1:6443")
    check_url("proxy-url", cluster.get("proxy-url"), "http://proxy:3128")
    if not isinstance(name := cluster.get("tls-server-name"), str | None):
        raise ConfigException(f"tls-server-name must be a string, not {_shown(name)}")
    if not isinstance(skip := cluster.get("insecure-skip-tls-verify"), bool | None):
        raise ConfigException(f"insecure-skip-tls-verify must be true or false, not {_shown(skip)}")
    for field in (f"{name}-data" for name in _FILES):
        _check_base64(field, cluster.get(field) or user.get(field))
    certificate, key = (_has(user, field) for field in ("client-certificate", "client-key"))
    if key and not certificate:
        raise ConfigException("the user has a client-key without a client-certificate")
    _check_methods(user)


def _check_methods(user: Mapping[str, Any]) -> None:
    """Refuse ways to authenticate, and combinations of them, that client-go refuses; and a password
    without a username, which client-go would ignore.
    """
    name, password = user.get("username"), user.get("password")
    if (user.get("token") or user.get("tokenFile")) and (name or password):
        raise ConfigException("the user has a token and a username or password; keep one")
    if not isinstance(name, str | None):
        raise ConfigException(f"username must be a string, not {_shown(name)}")
    if not isinstance(password, str | None):
        raise ConfigException("password must be a string; put it in quotes")
    if password and not name:
        raise ConfigException("the user has a password without a username")
    if (provider := user.get("auth-provider")) is None:
        return
    if user.get("exec") is not None:
        raise ConfigException("the user has exec and auth-provider; keep one")
    _check_provider(provider.get("name") if isinstance(provider, Mapping) else None)


def _check_provider(name: Any) -> None:
    if not name:
        raise ConfigException("auth-provider of the user has no name")
    if name == _OIDC:
        return
    provider = f"auth-provider {_shown(name)} of the user"
    if isinstance(name, str) and (plugin := _REMOVED.get(name)):
        raise ConfigException(
            f"{provider} was removed from Kubernetes clients in 1.26; use exec with {plugin}"
        )
    raise ConfigException(f"{provider} is unknown; use exec with a credential plugin")


def _check_base64(field: str, data: Any) -> None:
    if not data:
        return
    try:
        text = data.decode("ascii") if isinstance(data, bytes) else str(data)
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigException(f"{field} is not valid base64 ({error})") from error


def check_url(field: str, url: Any, example: str) -> None:
    """Raise ConfigException where a field that should hold a server's URL does not; it may be
    empty."""
    if not url:
        return
    if not isinstance(url, str):
        raise ConfigException(f"{field} {_shown(url)} is not a valid URL, such as {example}")
    if not url.isprintable():
        raise ConfigException(f"its {field} contains a non-printable character")
    if not url.startswith(("http://", "https://")):
        raise ConfigException(f"{field} {_shown(url)} must begin with http:// or https://")
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0
    except ValueError as error:
        raise ConfigException(f"{field} {_shown(url)} is not a valid URL: {error}") from error
    if not usable:
        raise ConfigException(f"{field} {_shown(url)} is not a valid URL, such as {example}")


def _check_loaded(configuration: Any) -> None:
    """Check what would only fail with the first request."""
    if not configuration.host:
        raise ConfigException("the cluster of its current context has no server")
    token = configuration.api_key.get("BearerToken")
    if token and not str(token).isprintable():
        raise ConfigException("its token contains a non-printable character")


def _check_certificates(configuration: Any, user: Any) -> None:
    """Check that the certificates of a loaded client configuration can be used."""
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    except (ssl.SSLError, OSError) as error:
        raise ConfigException(
            f"certificate-authority contains no usable PEM certificates ({error})"
        ) from error
    if not configuration.cert_file:
        return
    try:
        context.load_cert_chain(configuration.cert_file, configuration.key_file, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigException(_unusable(configuration, user, error)) from error


def _unusable(configuration: Any, user: Any, error: Exception) -> str:
    if not _has(user, "client-certificate"):
        return f"the certificate from its credential plugin cannot be used ({error})"
    if not configuration.key_file:
        return "the user has a client-certificate without a client-key"
    return (
        "client-certificate and client-key are not a PEM certificate and its unencrypted "
        f"key ({error})"
    )


def unreadable(path: Path) -> str:
    """Why no kubeconfig can be read at this path, such as "is a directory"; "" if one may be."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be read ({error})"
    if stat.S_ISDIR(mode):
        return "is a directory"
    return "" if stat.S_ISREG(mode) else "is not a regular file"


class _Impersonation(msgspec.Struct, frozen=True):
    """Whom the user of a kubeconfig acts as."""

    user: str | None = msgspec.field(default=None, name="as")
    uid: str | None = msgspec.field(default=None, name="as-uid")
    groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    extra: dict[str, list[str]] | None = msgspec.field(default=None, name="as-user-extra")

    def texts(self) -> dict[str, list[str]]:
        """All that is sent, by field."""
        extra = self.extra or {}
        return {
            "as": [self.user or ""],
            "as-uid": [self.uid or ""],
            "as-groups": self.groups or [],
            "as-user-extra": [*extra, *(value for values in extra.values() for value in values)],
        }


_IMPERSONATION_FIELDS = {f.encode_name for f in msgspec.structs.fields(_Impersonation)}


def _impersonation_headers(user: Any) -> list[tuple[str, str]]:
    """The headers that client-go sends with every request. A name may come several times."""
    acts_as = _impersonation(user if isinstance(user, Mapping) else {})
    if not acts_as.user:
        if acts_as.uid or acts_as.groups or acts_as.extra:
            raise ConfigException(
                "the user has as-uid, as-groups or as-user-extra without as (whom to impersonate)"
            )
        return []
    found = [("Impersonate-User", acts_as.user)]
    if acts_as.uid:
        found.append(("Impersonate-Uid", acts_as.uid))
    found += (("Impersonate-Group", group) for group in acts_as.groups or ())
    for key, values in (acts_as.extra or {}).items():
        name = f"Impersonate-Extra-{quote(key, safe=_ALLOWED_IN_NAMES)}"
        found += ((name, value) for value in values)
    return found


def _impersonation(user: Mapping[Any, Any]) -> _Impersonation:
    written = {key: value for key, value in user.items() if key in _IMPERSONATION_FIELDS}
    try:
        acts_as = msgspec.convert(written, _Impersonation)
    except msgspec.ValidationError as error:
        raise ConfigException(f"impersonation by the user: {error}") from error
    for field, texts in acts_as.texts().items():
        if not all(text.isprintable() for text in texts):
            raise ConfigException(f"{field} of the user contains a non-printable character")
    return acts_as


def _has(user: Any, field: str) -> bool:
    """Whether the user has what the field names, as a file or as data."""
    return isinstance(user, Mapping) and bool(user.get(field) or user.get(f"{field}-data"))


def _shown(value: Any) -> str:
    text = _PASSWORD.sub(r"\1…@", repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
