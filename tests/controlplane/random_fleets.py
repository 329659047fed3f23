"""Random clusters of a few nodes and random claims on them, all as the API server accepts them;
made of what the cases of the oracle are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.controlplane import objects
from tests.controlplane.api import Object
from tests.oracle import fleets, requests

NODES = 4
IMPLICIT = "deviceclass.resource.kubernetes.io/"
FLEET_TOPICS = {"counters": 0.4, "shares": 0.4, "taints": 0.5, "places": 0.4, "broken": 0.2}
CLAIM_TOPICS = ("constraints", "alternatives", "all", "admin", "shares", "taints")
"""Binding conditions are left out: here nobody fulfils them. So is what no API server accepts."""


class Fleet:
    """`drivers` are those that publish devices."""

    def __init__(self, random: Random) -> None:
        self.nodes = [_node(i) for i in range(NODES)]
        topics = {topic for topic, share in FLEET_TOPICS.items() if random.random() < share}
        self.slices = [s for i in range(NODES) for s in _slices(random, topics, i)]
        self.drivers = sorted({s["spec"]["driver"] for s in self.slices})
        self.classes = [
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **made}
            for made in requests.device_classes(random, set())
        ]
        self.resources = [f"{IMPLICIT}{made['metadata']['name']}" for made in self.classes]
        for number, made in enumerate(self.classes):
            if random.random() < 0.7:
                made["spec"]["extendedResourceName"] = f"example.com/resource-{number}"
                self.resources.append(f"example.com/resource-{number}")

    def claims(self, random: Random) -> list[Object]:
        """The specs of one pod's claims."""
        topics = {topic for topic in CLAIM_TOPICS if random.random() < 0.4}
        return [made["spec"] for made in requests.claims(random, topics, self.drivers)]

    def containers(self, random: Random) -> Object:
        """Of one pod that asks for extended resources."""
        resources = random.sample(self.resources, random.choice((1, 1, 2)))
        kept = random.choice((1, 1, 2))
        made = [
            _container(random, resources, f"c{i}") for i in range(kept + random.choice((0, 1, 2)))
        ]
        made[0]["resources"]["limits"][resources[0]] = "1"
        for container in made[kept:]:
            if random.random() < 0.4:
                container["restartPolicy"] = "Always"
        return {"initContainers": made[kept:], "containers": made[:kept]}


def _container(random: Random, resources: Sequence[str], name: str) -> Object:
    units = {each: str(random.choice((1, 1, 2, 3))) for each in resources if random.random() < 0.6}
    limits = {"cpu": "1m", **units}
    return {"name": name, "image": "example.com/none:1", "resources": {"limits": limits}}


def _node(number: int) -> Object:
    labels = {"zone": f"z{number % 2 + 1}", "cards": str(2 + number % 3)}
    return objects.node(f"n{number}", labels=labels, pods=500)


def _slices(random: Random, topics: set[str], number: int) -> list[Object]:
    """The oracle's slices are about one node and another: here that is this one and the next."""
    text = json.dumps(fleets.slices(random, topics))
    for written, meant in (
        ("node-a", f"n{number}"),
        ("node-b", f"n{(number + 1) % NODES}"),
        ('"pool-', f'"n{number}-pool-'),
        ('"slice-', f'"n{number}-slice-'),
        ('"Future"', '"None"'),
    ):
        text = text.replace(written, meant)
    made: list[Object] = json.loads(text)
    for slice_ in made:
        if devices := slice_["spec"].get("devices"):
            slice_["spec"]["devices"] = list({d["name"]: d for d in devices}.values())
        for device in slice_["spec"].get("devices") or ():
            _accepted(device)
    return [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **s} for s in made]


def _accepted(device: dict[str, Any]) -> None:
    """Only shared devices have request policies, whose values are not above the capacity's."""
    for capacity in device.get("capacity", {}).values():
        if not device.get("allowMultipleAllocations"):
            capacity.pop("requestPolicy", None)
        policy = capacity.get("requestPolicy", {})
        if policy.get("validRange", {}).get("max"):
            policy["validRange"]["max"] = "8Gi"
    taints = {(t["key"], t["effect"]): t for t in device.get("taints", ())}
    if taints:
        device["taints"] = list(taints.values())
