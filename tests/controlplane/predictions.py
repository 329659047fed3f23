"""What Fettle foretells for a pod, and what its claims then got, in the same form to compare."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fettle.scheduling import EXTENDED_RESOURCES
from tests.controlplane.api import Api, Object

Taken = tuple[str, str]
"""`claim/request` (with the alternative) as the pod names the claim, and `driver/pool/device`."""

FLEET = ("nodes", "resourceslices", "deviceclasses", "devicetaintrules")
ASKING = ("resourceclaims", "resourceclaimtemplates", "pods")
"""The kinds that a prediction is made of."""


PENDING = "not evaluated yet"
ERROR = "would end in an error"
ELSEWHERE = "is allocated to other nodes"
NOTHING = "no allocation is possible here"
"""Words of `/explain`."""


class Foretold(msgspec.Struct, frozen=True):
    """For one node; no devices: none could be allocated there, for the reason given."""

    devices: tuple[Taken, ...]
    reason: str

    @property
    def aborts(self) -> bool:
        """Whether an error there would end the scheduler's attempt for all nodes."""
        return ERROR in self.reason

    @property
    def undecided(self) -> bool:
        """Whether the search was given up, for its length: the reason says so."""
        known = (ERROR, ELSEWHERE, NOTHING)
        return not self.devices and not any(words in self.reason for words in known)


def foretold(explained: dict[str, Any]) -> dict[str, Foretold]:
    """Node → prediction, of what `/explain` answers. Claims allocated before are left out."""
    found = {}
    for node, verdict in explained["nodes"].items():
        devices = [_taken(choice) for choice in verdict["devices"] if "/" in choice["request"]]
        elsewhere = any(ELSEWHERE in why for why in verdict["rejected"])
        reasons = "; ".join((*verdict["rejected"], *verdict["undecided"]))
        found[node] = Foretold(() if elsewhere else tuple(devices), reasons)
    return found


def _taken(choice: dict[str, Any]) -> Taken:
    alternative = f"/{choice['alternative']}" if choice["alternative"] else ""
    return choice["request"] + alternative, choice["device"]


def got(claims: Sequence[tuple[str, Object]]) -> tuple[Taken, ...]:
    """What the pod's claims were given: (its name for the claim, the claim) in the pod's order."""
    return tuple(
        (f"{name}/{result['request']}", "/".join(result[k] for k in ("driver", "pool", "device")))
        for name, claim in claims
        for result in claim["status"]["allocation"]["devices"].get("results") or ()
    )


def held(claims: Sequence[tuple[str, Object]]) -> set[str]:
    """The devices among them that are taken now; administrators take none."""
    return {_device(result) for result in _results(claims) if not result.get("adminAccess")}


def _results(claims: Sequence[tuple[str, Object]]) -> list[Object]:
    allocations = [claim["status"]["allocation"]["devices"] for _, claim in claims]
    return [result for devices in allocations for result in devices.get("results") or ()]


def _device(result: Object) -> str:
    return "/".join(result[key] for key in ("driver", "pool", "device"))


def in_use(answered: tuple[int, Any]) -> set[str]:
    """The devices that some claim holds alone, of what `/devices` answers.

    By a claim's names for them: of what several nodes publish alike, Fettle adds the node.
    """
    status, found = answered
    assert status == 200, found
    listed = [d for node in found["nodes"] for d in node["devices"]] + found["network"]
    return {d["device"].partition(" of node ")[0] for d in listed if d["allocated"]}


async def claims_of(api: Api, pod: Object) -> list[tuple[str, Object]]:
    """A pod's claims: by direct name, made from a template, made for its extended resources."""
    statuses = pod["status"].get("resourceClaimStatuses") or []
    made = {status["name"]: status.get("resourceClaimName") for status in statuses}
    names = [
        (entry["name"], entry.get("resourceClaimName") or made.get(entry["name"]))
        for entry in pod["spec"].get("resourceClaims") or ()
    ]
    extended = pod["status"].get("extendedResourceClaimStatus") or {}
    names.append((EXTENDED_RESOURCES, extended.get("resourceClaimName")))
    return [(key, await api.get("resourceclaims", name)) for key, name in names if name]


async def snapshot(api: Api, kinds: Sequence[str]) -> list[Object]:
    """All objects of these kinds."""
    listed = await asyncio.gather(*(api.list(kind) for kind in kinds))
    return [item for items in listed for item in items]


def write(snapshot: Sequence[Object], folder: Path) -> Path:
    """A folder that `fettle serve --snapshot` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"apiVersion": "v1", "kind": "List", "items": list(snapshot)}
    (folder / "cluster.json").write_text(json.dumps(document, indent=1))
    return folder
