"""Fettle's entry under `extenders` of a KubeSchedulerConfiguration: as shipped in `entry.yaml`, for
the resources, mode and address that are wanted, and how one that is there already is made to fit.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from fettle.cli.scheduler_config.yaml_edits import Commented, rewritten, value_of
from fettle.dra import IMPLICIT_CLASS_PREFIX, MARKER, is_device_resource
from fettle.model import BadInput

Entry = dict[str, Any]

LOOPBACK = "http://127.0.0.1:8088"
_OURS = ("filterVerb", "prioritizeVerb", "preemptVerb", "nodeCacheCapable")
"""What no installation has otherwise; all else that an entry says stays."""
_NEEDED = ("weight", "httpTimeout")
_VERBS = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt"}
_UNSERVED = "bindVerb"
_LIST, _MARKER_COMMENT = "managedResources:\n", "  # The webhook puts this marker"
_RESOURCE = re.compile(r"[a-z0-9.-]{1,253}/[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_AN_ADDRESS = "write an address with a port, such as https://10.96.0.88:8088"
_FILES = "/etc/kubernetes/fettle"
OVER_TLS: Entry = {
    "enableHTTPS": True,
    "tlsConfig": {
        "serverName": "fettle-extender.fettle-system.svc",
        "caFile": f"{_FILES}/extender-ca.crt",
        "certFile": f"{_FILES}/scheduler.crt",
        "keyFile": f"{_FILES}/scheduler.key",
    },
}
"""With an https address. docs/extender-tls.md says where the three files come from."""


@dataclass(frozen=True)
class Wanted:
    """None: as shipped in a new entry, and in another one as it is."""

    enforces: bool | None = None
    url: str | None = None
    resources: Sequence[str] | None = None


def is_fettles(entry: Entry, url: str | None) -> bool:
    """Whether an entry leads to Fettle, at `url` or on loopback with no other verbs than Fettle's,
    or lists its marker."""
    there = entry["urlPrefix"].rstrip("/")
    if there == url or MARKER in names(entry):
        return True
    return _is_ours_on_loopback(there) and not other_verbs(entry)


def other_verbs(entry: Entry) -> str:
    """The first verb of an entry that Fettle does not serve, as `filterVerb: predicates`; "" if
    there is none."""
    found = ((key, entry.get(key)) for key in (*_VERBS, _UNSERVED))
    return next((f"{key}: {one}"[:80] for key, one in found if one and one != _VERBS.get(key)), "")


def in_place(entries: Sequence[Entry], wanted: Wanted) -> tuple[int, str] | None:
    """Which extender is at the address of a new entry though it is not Fettle's, and by which verb
    one sees that."""
    for at, entry in enumerate(entries):
        is_there = _is_ours_on_loopback(entry["urlPrefix"].rstrip("/"))
        if wanted.url is None and is_there and (verb := other_verbs(entry)):
            return at, verb
    return None


def _is_ours_on_loopback(address: str) -> bool:
    """Whether it is LOOPBACK by any name of this host."""
    try:
        found, ours = urlsplit(address), urlsplit(LOOPBACK)
        is_alike = (found.scheme, found.port, found.path) == (ours.scheme, ours.port, ours.path)
    except ValueError:
        return False
    return is_alike and _is_loopback(found.hostname or "")


def names(entry: Entry) -> list[str]:
    """Of its managed resources."""
    return [resource["name"] for resource in entry.get("managedResources") or ()]


def can_be_listed(name: str) -> bool:
    """Whether kube-scheduler accepts it under `managedResources`, and it is not our marker."""
    return (
        _RESOURCE.fullmatch(name) is not None
        and is_device_resource(name)
        and not name.startswith((IMPLICIT_CLASS_PREFIX, "requests."))
    )


def read_url(given: str) -> str:
    """An extender's address without a slash at its end; raises BadInput for one that Fettle never
    has."""
    try:
        url = urlsplit(given)
        host, port = url.hostname, url.port
    except ValueError:
        host = port = None
    is_one_word = given.isprintable() and " " not in given
    if not is_one_word or not host or not port:
        raise BadInput(f"{given!r}: {_AN_ADDRESS}")
    if url.scheme not in ("http", "https") or url.query or url.username:
        raise BadInput(f"{given!r}: {_AN_ADDRESS}")
    if url.scheme == "http" and not _is_loopback(host):
        raise BadInput(f"{given!r}: Fettle answers over plain HTTP on loopback only: write https")
    return given.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def new_entry(wanted: Wanted, taken: Collection[str]) -> Commented:
    """With its comments, and without the resources that are `taken` by other extenders."""
    text = resources.files(__package__).joinpath("entry.yaml").read_text()
    if wanted.resources is not None:
        head, _, rest = text.partition(_LIST)
        _, marker, tail = rest.partition(_MARKER_COMMENT)
        listed = "".join(f"  - name: {name}\n" for name in wanted.resources)
        text = head + _LIST + listed + marker + tail
    entry = value_of(text)
    free = [one for one in entry["managedResources"] if one["name"] not in taken]
    text = rewritten(text, {**entry, "managedResources": free})
    return Commented(rewritten(text, _fitted(value_of(text), wanted)))


def updated(entry: Entry, wanted: Wanted, taken: Collection[str]) -> Entry:
    """An entry that is there already, made to fit. Its weight (if kube-scheduler takes it), its
    timeout, its files and all resources in its list stay."""
    shipped = new_entry(wanted, taken)
    made = _fitted(entry, wanted) | {key: shipped[key] for key in _OURS}
    for key in _NEEDED:
        made.setdefault(key, shipped[key])
    if not isinstance(made["weight"], int) or made["weight"] < 1:
        made["weight"] = shipped["weight"]
    made.pop(_UNSERVED, None)
    listed = [_ignored(one) for one in entry.get("managedResources") or ()]
    here = set(names(entry))
    added = shipped["managedResources"]
    if here and wanted.resources is None:
        added = [one for one in added if one["name"] == MARKER]
    made["managedResources"] = listed + [one for one in added if one["name"] not in here]
    return made


def _ignored(resource: Entry) -> Entry:
    return resource | {"ignoredByScheduler": True} if resource["name"] == MARKER else resource


def _fitted(entry: Entry, wanted: Wanted) -> Entry:
    """For the wanted mode and address."""
    made = dict(entry)
    if wanted.enforces is not None:
        made["ignorable"] = not wanted.enforces
    if wanted.url is None:
        return made
    made["urlPrefix"] = wanted.url
    for key, value in OVER_TLS.items():
        if wanted.url.startswith("https:"):
            made.setdefault(key, value)
        else:
            made.pop(key, None)
    return made
