"""What a tenant may store as the parameters of a claim, and strict readers of JSON refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError
from tests.controlplane.conftest import StartFettle
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import scores, start_registered

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DEEP = b"[" * 4900 + b"]" * 4900
"""Parameters of a driver may have 10 KiB."""
NO_UTF8 = b'"\xff\xfe"'
HALF = b'"\\ud800"'
"""Of a surrogate pair."""
HERE = {"key": "metadata.name", "operator": "In", "values": ["n"]}


async def create(api: Api, name: str, odd: bytes, count: int = 1) -> None:
    """A claim as anybody may make it."""
    spec = objects.claim_spec(count)
    opaque = {"driver": "acme.example.com", "parameters": {"odd": "HERE"}}
    spec["devices"]["config"] = [{"opaque": opaque}]
    text = json.dumps(objects.claim(name, spec)).encode().replace(b'"HERE"', odd)
    await api.request_bytes("POST", CLAIMS, body=text)


async def hold_the_only_device(api: Api, name: str) -> None:
    result = {"request": "gpu", "driver": objects.DRIVER, "pool": "n", "device": "gpu-0"}
    nodes = {"nodeSelectorTerms": [{"matchFields": [HERE]}]}
    status = {"allocation": {"devices": {"results": [result]}, "nodeSelector": nodes}}
    text = json.dumps({"status": status}).encode()
    await api.request_bytes("PATCH", f"{CLAIMS}/{name}/status", body=text, form="merge")


async def verdict(api: Api, fettle: FettleProcess, pod: str, claim: str) -> Any:
    """On a pod with that claim, once Fettle knows both."""
    made = objects.pod(pod, claims={"gpu": claim})
    made["spec"]["schedulingGates"] = [{"name": "example.com/asked-only"}]
    await api.create(made)
    found = await waiting.wait_until(
        lambda: scores(fettle, pod),
        lambda nodes: bool(nodes) and not nodes["n"]["undecided"],
        what="Fettle knows the pod and its claim",
    )
    return found["n"]


@pytest.mark.parametrize(
    ("odd", "listed"),
    [
        pytest.param(DEEP, True, id="deep, listed"),
        pytest.param(DEEP, False, id="deep, watched"),
        pytest.param(NO_UTF8, True, id="no UTF-8, listed"),
        pytest.param(HALF, False, id="half a pair, watched"),
    ],
)
async def test_a_claim_with_odd_parameters_hides_neither_itself_nor_others(
    api: Api, start_fettle: StartFettle, odd: bytes, listed: bool
) -> None:
    await create_dra_node(api, "n", objects.gpu_devices(1), objects.node("n"))
    if listed:
        await create(api, "odd", odd)
    fettle = await start_fettle("extender")
    if not listed:
        await create(api, "odd", odd)
    found = await verdict(api, fettle, "before", "odd")
    assert [d["device"] for d in found["devices"]] == [f"{objects.DRIVER}/n/gpu-0"]

    await hold_the_only_device(api, "odd")
    await api.create(objects.claim("plain"))
    found = await verdict(api, fettle, "after", "plain")
    assert "no allocation is possible here" in "; ".join(found["rejected"])
    status, told = await fettle.browse("/readyz", verbose="")
    assert (status, "ResourceClaim: synced" in told) == (200, True)


@pytest.mark.parametrize("odd", [DEEP, HALF], ids=["deep", "half a pair"])
async def test_a_claim_does_not_pass_validation_for_its_odd_parameters(
    api: Api, start_fettle: StartFettle, odd: bytes
) -> None:
    await start_registered(api, start_fettle, "webhook")
    await create(api, "sound", odd)
    with pytest.raises(ApiError) as refusal:
        await create(api, "wrong", odd, 33)
    assert "FTL010" in str(refusal.value)
