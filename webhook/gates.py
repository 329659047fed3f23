"""Which injected fields the cluster preserves; a field that it drops is not injected.

The API server silently drops fields of disabled features, and then refuses some combinations. It is
asked by server-side dry runs, in our own namespace, which our webhooks do not see; and again from
time to time, since clusters are upgraded.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import structlog

from fettle.client import Session, decoded, served_kinds, server_version
from fettle.dra import release
from fettle.model import DEGRADED_TAINT, ClusterError, Invalid, NotServed
from webhook.fitting import READ

PROBE_EVERY_S = 600.0
RETRY_S = 5.0
RESTART_RULES_SINCE = (1, 35)
_UNKNOWN = "cannot determine which fields the API server preserves"
_NAME = "fettle-probe"
"""Not generated: what admission refuses is named, and a refusal is logged whenever it changes."""

_log = structlog.get_logger("fettle.webhook")


class Gates(NamedTuple):
    """Whether claims keep device tolerations and alternatives, and pods restart rules."""

    tolerations: bool = False
    alternatives: bool = False
    restart_rules: bool = False

    def without(self, disabled: Collection[str]) -> "Gates":
        """As the scheduler would use them, with these feature gates of its own off."""
        return self._replace(
            tolerations=self.tolerations and "DRADeviceTaints" not in disabled,
            alternatives=self.alternatives and "DRAPrioritizedList" not in disabled,
        )


EVERYTHING = Gates(True, True, True)
"""Where there is no cluster to ask."""


class _Option(msgspec.Struct, frozen=True):
    tolerations: Sequence[Any] | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    """Of v1beta1, where the one option is the request itself, as of later versions."""

    tolerations: Sequence[Any] | None = None
    exactly: _Option | None = None
    first_available: Sequence[Any] | None = None


class _Devices(msgspec.Struct, frozen=True):
    requests: Annotated[Sequence[_Request], msgspec.Meta(min_length=1)]


class _Spec(msgspec.Struct, frozen=True):
    devices: _Devices


class _Claim(msgspec.Struct, frozen=True):
    spec: _Spec


class Probe:
    """`gates` are the latest answers; None: there is none yet. `run` until cancelled."""

    def __init__(self, session: Session, namespace: str) -> None:
        self.gates: Gates | None = None
        self._session = session
        self._namespace = namespace
        self._failure = ""

    async def run(self) -> None:
        while True:
            try:
                gates = await self.ask()
            except ClusterError as error:
                if str(error) != self._failure:
                    _log.warning(_UNKNOWN, reason=str(error))
                self._failure = str(error)
                await asyncio.sleep(RETRY_S)
                continue
            if gates != self.gates:
                _log.info("injected fields that the API server preserves", **gates._asdict())
            self.gates, self._failure = gates, ""
            await asyncio.sleep(PROBE_EVERY_S)

    def notes(self) -> list[str]:
        """Sentences for people on what is not known; none while all is well."""
        if not self._failure:
            return []
        does = "goes by what it was" if self.gates is not None else "injects none of them"
        return [f"webhook: {_UNKNOWN}, so it {does}: {self._failure}"]

    async def ask(self) -> Gates:
        """Raises ClusterError where the API server gives no answer."""
        kinds = await served_kinds(self._session, "resource.k8s.io")
        served = {found.version for found in kinds if found.kind == "ResourceClaim"}
        version = next((version for version in READ["resource.k8s.io"] if version in served), "v1")
        option = _option() if version == "v1beta1" else {"exactly": _option()}
        exactly = await self._kept(version, option)
        alternatives = await self._kept(version, {"firstAvailable": [{"name": "one", **_option()}]})
        kept = exactly.exactly or exactly
        return Gates(
            tolerations=bool(kept.tolerations),
            alternatives=bool(alternatives.first_available),
            restart_rules=release(await server_version(self._session)) >= RESTART_RULES_SINCE,
        )

    async def _kept(self, version: str, request: dict[str, Any]) -> _Request:
        """The request as it would be stored; nothing where it would be refused."""
        path = f"/apis/resource.k8s.io/{version}/namespaces/{self._namespace}/resourceclaims"
        claim = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {"name": _NAME, "namespace": self._namespace},
            "spec": {"devices": {"requests": [{"name": "probe", **request}]}},
        }
        try:
            stored = await self._session.create(f"{path}?dryRun=All", claim)
        except (Invalid, NotServed) as error:
            _log.debug("a claim would be refused", reason=str(error))
            return _Request()
        return decoded(stored, _Claim, "dry-run claim").spec.devices.requests[0]


def _option() -> dict[str, Any]:
    toleration = {"key": DEGRADED_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    return {"deviceClassName": "fettle.dev", "tolerations": [toleration]}
