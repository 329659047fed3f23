"""Where the cluster is and who we are there: by a kubeconfig or by the pod's service account, and
through the proxy that the environment names. Makes the official client; contacts no server, except
as a kubeconfig's credentials need it.
"""

import ipaddress
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from fettle import __version__
from fettle.client import kubeconfig as kubeconfigs
from fettle.client.kubeconfig import AS_IT_STANDS, BROKEN, Chosen
from fettle.model import NoCluster, SettingsError

DEFAULT_NAMESPACE = "fettle-system"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account: `token`, `ca.crt`, `namespace`."""
_SHOWN_ENTRY = re.compile(r"/\{.*\}")
"""Where an error of the official client shows a whole entry of a kubeconfig, with credentials."""
_PORTS = {"http": 80, "https": 443}
_HOST_AND_PORT = re.compile(r"(\[[^][]*\]|[^][:]*):([^][:]*)")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ClusterConnection(NamedTuple):
    """The official client, the namespace we live in or work in by default, and the name that the
    kubeconfig gives to the user.

    `authority`: where the certificates come from that we trust servers by, for people.
    `expires_at`: when the credentials end, in Unix seconds; infinite if that is not known.
    """

    client: Any
    namespace: str
    authority: str
    expires_at: float = float("inf")
    user: str = ""
    users_namespace: str = "default"
    """Of what people name without one, as kubectl has it."""
    certificate: bytes = b""
    """That we show, as PEM; empty if we show none."""


async def connect(
    kubeconfig: Path | None, account: Path | None = None, chosen: Chosen = AS_IT_STANDS
) -> ClusterConnection:
    """Use the kubeconfig, else $KUBECONFIG, else the pod's service account unless a context is
    chosen, else ~/.kube/config.

    `account` is where to look for the service account, ACCOUNT if it is None. Raises SettingsError.
    """
    if kubeconfig is not None:
        return await _from_files(str(kubeconfig), f"--kubeconfig {kubeconfig}", chosen)
    if named := os.environ.get("KUBECONFIG"):
        return await _from_files(named, f"$KUBECONFIG ({named})", chosen)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not chosen.context:
        return _in_cluster(account or ACCOUNT, chosen)
    home = Path.home() / ".kube" / "config"
    if home.exists():
        return await _from_files(str(home), str(home), chosen)
    raise NoCluster(
        f"no cluster to connect to: $KUBECONFIG is not set, {home} does not exist and this is not "
        "a pod; pass --kubeconfig FILE"
    )


async def _from_files(named: str, origin: str, chosen: Chosen) -> ClusterConnection:
    """`named` is one path or several, as in $KUBECONFIG; `origin` says who named it."""
    paths = _paths(named)
    if not any(path.exists() for path in paths):
        raise NoCluster(f"no kubeconfig from {origin}: no such file; pass --kubeconfig FILE")
    try:
        with ExitStack() as files:
            joined = os.pathsep.join(str(path) for path in paths)
            found = await kubeconfigs.load(joined, files, chosen)
            client = _client(found.configuration, found.headers)
    except SettingsError as error:
        raise SettingsError(f"kubeconfig {origin}: {error}") from error
    except BROKEN as error:
        raise SettingsError(f"kubeconfig {origin}: {_description(error)}") from error
    return ClusterConnection(
        client,
        found.namespace or DEFAULT_NAMESPACE,
        "certificate-authority in the kubeconfig",
        found.expires_at,
        found.user,
        found.namespace or "default",
        found.certificate,
    )


def _paths(named: str) -> list[Path]:
    return [Path(part).expanduser() for part in named.split(os.pathsep) if part]


def _in_cluster(account: Path, chosen: Chosen) -> ClusterConnection:
    configuration = Configuration()
    try:
        authority = str(account / "ca.crt")
        InClusterConfigLoader(str(account / "token"), authority).load_and_set(configuration)
        acts_as = [("Impersonate-User", chosen.acts_as)] if chosen.acts_as else []
        client = _client(configuration, acts_as + [("Impersonate-Group", g) for g in chosen.groups])
    except BROKEN as error:
        raise SettingsError(
            f"the pod's service account in {account} cannot be used ({error}); "
            "set automountServiceAccountToken, or pass --kubeconfig FILE"
        ) from error
    try:
        namespace = (account / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        namespace = ""
    origin = f"the service account's {authority}"
    return ClusterConnection(
        client, namespace or DEFAULT_NAMESPACE, origin, users_namespace=namespace or "default"
    )


def _client(configuration: Any, headers: Sequence[tuple[str, str]] = ()) -> Any:
    """`headers` go along with every request."""
    configuration.client_session_kwargs = {"trust_env": False, "headers": headers}
    configuration.proxy = configuration.proxy or proxy_of_environment(configuration.host)
    # Verify as kubectl does: from 3.13 on, Python also wants certificates to name their authority's
    # key, and those of many clusters do not.
    configuration.disable_strict_ssl_verification = True
    client = ApiClient(configuration)
    client.user_agent = f"fettle/{__version__}"
    return client


def _description(error: Exception) -> str:
    text = " ".join(str(error).encode("utf-8", "replace").decode().split())
    if isinstance(error, ConfigException | yaml.YAMLError | OSError):
        return _SHOWN_ENTRY.sub("", text)
    return "it is not a kubeconfig with clusters, users, contexts and current-context"


def proxy_of_environment(server: str) -> str | None:
    """The URL in $HTTPS_PROXY ($HTTP_PROXY for a plain server), as kubectl and Go programs find it.

    None where there is none, and for servers that $NO_PROXY names or that are on this machine.
    Raises ConfigException where it is no URL.
    """
    # A port of golang.org/x/net/http/httpproxy without the Punycode form of names. The HTTP client
    # would look it up with each request, in a thread, and would read credentials from a netrc.
    # `urllib.request` differs in what $NO_PROXY matches and in which variables count.
    parts = urlsplit(server)
    variable = f"{parts.scheme.upper()}_PROXY"
    proxy = _variable(variable)
    if not proxy or not _use_proxy(parts.hostname or "", parts.port or _PORTS[parts.scheme]):
        return None
    scheme, rest = proxy.split("://", 1) if "://" in proxy else ("http", proxy)
    proxy = f"{scheme.lower()}://{rest}"
    kubeconfigs.check_url(f"${variable}", proxy, "http://proxy:3128")
    return proxy


def _variable(name: str) -> str:
    """In capitals, else in lower case; an empty one counts as unset."""
    return os.environ.get(name) or os.environ.get(name.lower(), "")


def _use_proxy(host: str, port: int) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = (entry.strip().lower() for entry in _variable("NO_PROXY").split(","))
    return not any(_matches(entry, host, str(port), address) for entry in entries)


def _matches(entry: str, host: str, port: str, address: Address | None) -> bool:
    """Whether an entry of $NO_PROXY matches this host; `address` is the host's, if it is one."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    parts = _HOST_AND_PORT.fullmatch(entry)
    name, only_port = (parts[1].strip("[]"), parts[2]) if parts else (entry, "")
    if not name or only_port not in ("", port):
        return False
    if (listed := _address(name)) is not None or address is not None:
        return listed == address
    domain = name.removeprefix("*") if name.startswith("*.") else name
    if domain.startswith("."):
        return host.endswith(domain)
    return f".{host}".endswith(f".{domain}")


def _address(host: str) -> Address | None:
    """An IPv4 address also where IPv6 notation wraps it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(entry: str) -> Network | None:
    """A range in CIDR notation; unlike Python, Go knows no netmasks such as /255.0.0.0."""
    if entry.rpartition("/")[2].isdecimal() and "/" in entry:
        with suppress(ValueError):
            return ipaddress.ip_network(entry, strict=False)
    return None
