"""Whatever the API server says of the lease: it is read, or refused in one sentence; a candidate
leads or goes on trying, and never falls over it."""

import asyncio
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.client.leasing import LeaderElector, read_lease
from fettle.client.session import Session
from tests.fettle.client.fake_api import fake_api

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
SPECS = ANY | st.fixed_dictionaries(
    {},
    optional={
        "holderIdentity": st.sampled_from(["other", "one", ""]) | ANY,
        "leaseDurationSeconds": st.integers(-2, 20) | ANY,
        "leaseTransitions": st.sampled_from([0, 2**31 - 1]) | ANY,
        "renewTime": ANY,
        "strategy": ANY,
    },
)
BODIES = (ANY | st.fixed_dictionaries({}, optional={"metadata": ANY, "spec": SPECS})).map(
    lambda body: json.dumps(body).encode()
)


@given(st.binary() | BODIES)
def test_a_body_is_a_lease_or_one_sentence(body: bytes) -> None:
    said = ""
    try:
        assert isinstance(read_lease(body)["spec"], dict)
    except ValueError as error:
        said = str(error)
    assert len(said.splitlines()) <= 1


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"holderIdentity": ["other"]}, "holderIdentity"),
        ({"holderIdentity": "other", "leaseDurationSeconds": "15"}, "leaseDurationSeconds"),
        ({"holderIdentity": "", "leaseTransitions": "4"}, "leaseTransitions"),
        ({"holderIdentity": "", "leaseTransitions": -1}, "leaseTransitions"),
        ([1], "object"),
    ],
)
def test_a_lease_that_cannot_be_judged_is_refused_by_its_field(spec: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_lease(json.dumps({"metadata": {}, "spec": spec}).encode())


def test_a_lease_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ValueError, match="recursion"):
        read_lease(b'{"spec":' + b"[" * 100_000)


@pytest.mark.long
@settings(max_examples=40)
@given(SPECS)
async def test_a_candidate_leads_or_goes_on_trying(spec: Any) -> None:
    metadata = {"name": "steward", "namespace": "ns"}
    async with fake_api() as api:
        api.put("leases", {"metadata": metadata, "spec": spec})
        with tempfile.TemporaryDirectory() as folder:
            session = await Session.open(api.kubeconfig(Path(folder)))
        async with session:
            candidate = LeaderElector(session, "ns", "steward", "one", 2.0)
            with suppress(TimeoutError):
                await asyncio.wait_for(candidate.acquire(), 0.1)
            await candidate.release()
