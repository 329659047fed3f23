"""Checks kubeconfig fields of the cluster and user that would otherwise fail late or silently, and
names the field that is wrong. Raises `ConfigException`; pure except for reading certificates.
"""

import base64
import binascii
import re
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubernetes.aio.config import ConfigException

FILES = ("certificate-authority", "client-certificate", "client-key")
"""Fields that name a file, which the same field with `-data` can hold instead."""
OIDC = "oidc"
"""The only auth-provider that Kubernetes clients still have."""
_REMOVED = {"gcp": "gke-gcloud-auth-plugin", "azure": "kubelogin"}
"""Former auth-providers, and the credential plugins that came in their place."""
_LONGEST = 100
_PASSWORD = re.compile(r"(://)[^/@]*@")
"""Who asks, in a URL, and with which password."""


def check(cluster: Any, user: Any) -> None:
    """Called before any credentials are requested; what is not a mapping is reported elsewhere."""
    cluster = cluster if isinstance(cluster, Mapping) else {}
    user = user if isinstance(user, Mapping) else {}
    check_url("server", cluster.get("server"), "https://10.0.0.1:6443")
    check_url("proxy-url", cluster.get("proxy-url"), "http://proxy:3128")
    if not isinstance(name := cluster.get("tls-server-name"), str | None):
        raise ConfigException(f"tls-server-name must be a string, not {_shown(name)}")
    if not isinstance(skip := cluster.get("insecure-skip-tls-verify"), bool | None):
        raise ConfigException(f"insecure-skip-tls-verify must be true or false, not {_shown(skip)}")
    for field in (f"{name}-data" for name in FILES):
        _check_base64(field, cluster.get(field) or user.get(field))
    certificate, key = (has(user, field) for field in ("client-certificate", "client-key"))
    if key and not certificate:
        raise ConfigException("the user has a client-key without a client-certificate")
    _check_methods(user)


def _check_methods(user: Mapping[str, Any]) -> None:
    """Ways to authenticate that client-go refuses, by themselves or together, and a password
    alone, which it would leave out.
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
    if name == OIDC:
        return
    said = f"auth-provider {_shown(name)} of the user"
    if isinstance(name, str) and (plugin := _REMOVED.get(name)):
        raise ConfigException(
            f"{said} was removed from Kubernetes clients in 1.26; use exec with {plugin}"
        )
    raise ConfigException(f"{said} is unknown; use exec with a credential plugin")


def check_certificates(configuration: Any, user: Any) -> None:
    """Checks that the certificates of a loaded client configuration can be used."""
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


def check_url(field: str, url: Any, example: str) -> None:
    """Checks what is to be a URL of a server; no URL at all may be."""
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


def unreadable(path: Path) -> str:
    """Why a kubeconfig cannot be read there, such as "is a directory"; "" if it may be."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be read ({error})"
    if stat.S_ISDIR(mode):
        return "is a directory"
    return "" if stat.S_ISREG(mode) else "is not a regular file"


def _unusable(configuration: Any, user: Any, error: Exception) -> str:
    if not has(user, "client-certificate"):
        return f"the certificate from its credential plugin cannot be used ({error})"
    if not configuration.key_file:
        return "the user has a client-certificate without a client-key"
    return (
        "client-certificate and client-key are not a PEM certificate and its unencrypted "
        f"key ({error})"
    )


def has(user: Any, field: str) -> bool:
    """Whether the user has what the field names, as a file or as data."""
    return isinstance(user, Mapping) and bool(user.get(field) or user.get(f"{field}-data"))


def _check_base64(field: str, data: Any) -> None:
    if not data:
        return
    try:
        text = data.decode("ascii") if isinstance(data, bytes) else str(data)
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigException(f"{field} is not valid base64 ({error})") from error


def _shown(value: Any) -> str:
    text = _PASSWORD.sub(r"\1…@", repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
