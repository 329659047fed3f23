"""What the cluster keeps of what we would inject; a field that it drops is not injected.

The API server drops fields of features that are switched off without a word, and some combinations
it then refuses. It is asked by server-side dry runs, in our own namespace, which our webhooks do
not see; and again from time to time, since clusters are upgraded.
"""

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec
import structlog

from fettle.errors import ClusterError, Invalid, NotServed
from fettle.kube import discovering
from fettle.kube.session import Session
from fettle.policy import DEGRADED_TAINT
from webhook.fitting import READ

PROBE_EVERY_S = 600.0
RETRY_S = 5.0
RESTART_RULES_SINCE = (1, 35)

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


class Probe:
    """`gates` are the latest answers; None: there is none yet. `run` until cancelled."""

    def __init__(self, session: Session, namespace: str) -> None:
        self.gates: Gates | None = None
        self._session = session
        self._namespace = namespace

    async def run(self) -> None:
        said = ""
        while True:
            try:
                gates = await self.ask()
            except ClusterError as error:
                if str(error) != said:
                    _log.warning("not known what claims keep", reason=str(error))
                said = str(error)
                await asyncio.sleep(RETRY_S)
                continue
            if gates != self.gates:
                _log.info("what the cluster keeps of injected fields", **gates._asdict())
            self.gates, said = gates, ""
            await asyncio.sleep(PROBE_EVERY_S)

    async def ask(self) -> Gates:
        """Raises ClusterError where the API server gives no answer."""
        served = await discovering.versions(self._session, "resource.k8s.io")
        version = next((version for version in READ["resource.k8s.io"] if version in served), "v1")
        flat = version == "v1beta1"
        exactly = await self._kept(version, _option() if flat else {"exactly": _option()})
        alternatives = await self._kept(version, {"firstAvailable": [{"name": "one", **_option()}]})
        kept = exactly if flat else exactly.get("exactly", {})
        return Gates(
            tolerations=bool(kept.get("tolerations")),
            alternatives=bool(alternatives.get("firstAvailable")),
            restart_rules=await self._version() >= RESTART_RULES_SINCE,
        )

    async def _kept(self, version: str, request: dict[str, Any]) -> dict[str, Any]:
        """The request as it would be stored; nothing where it would be refused."""
        path = f"/apis/resource.k8s.io/{version}/namespaces/{self._namespace}/resourceclaims"
        claim = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {"generateName": "fettle-probe-", "namespace": self._namespace},
            "spec": {"devices": {"requests": [{"name": "probe", **request}]}},
        }
        try:
            stored = msgspec.json.decode(await self._session.create(f"{path}?dryRun=All", claim))
            kept: dict[str, Any] = stored["spec"]["devices"]["requests"][0]
        except (Invalid, NotServed) as error:
            _log.debug("a claim would be refused", reason=str(error))
            return {}
        except (msgspec.DecodeError, LookupError, TypeError) as error:
            raise ClusterError(
                f"the API server answers a dry run with no claim: {error}"
            ) from error
        return kept

    async def _version(self) -> tuple[int, int]:
        version = msgspec.json.decode(await self._session.get("/version"), type=dict[str, Any])
        digits = ("".join(filter(str.isdigit, str(version.get(p, "")))) for p in ("major", "minor"))
        major, minor = (int(text or 0) for text in digits)
        return major, minor


def _option() -> dict[str, Any]:
    toleration = {"key": DEGRADED_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    return {"deviceClassName": "fettle.dev", "tolerations": [toleration]}
