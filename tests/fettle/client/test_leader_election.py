"""Of several candidates one leads; whatever the lease holds, none of them fails."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fettle.client.leader_election import LeaderElector, lead, read_lease
from fettle.client.session import Session
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.cluster.feeds.recorder import PATIENCE_S
from tests.waiting import until

KEY = "fettle-system/steward"
DURATION_S = 1.0
LONG_S = 30.0
"""A release may take a fifth of it."""


class Worker:
    """Work that notes when it begins and ends. A release is waited for, however slow this machine
    is."""

    def __init__(
        self,
        session: Session,
        identity: str,
        *,
        duration_s: float = DURATION_S,
        release_s: float = 60.0,
    ) -> None:
        self.working = asyncio.Event()
        self.stopped = asyncio.Event()
        self.task = asyncio.create_task(
            lead(
                session,
                "fettle-system",
                "steward",
                identity,
                duration_s,
                self.work,
                release_s=release_s,
            )
        )

    async def work(self) -> None:
        self.working.set()
        self.stopped.clear()
        try:
            await asyncio.Event().wait()
        finally:
            self.working.clear()
            self.stopped.set()

    async def leads(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.working.wait()

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def spec(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = api.objects["leases"][KEY]["spec"]
    return found


async def test_the_first_candidate_creates_the_lease_and_leads(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one")
    await one.leads()
    record = spec(api)
    assert record["holderIdentity"] == "one"
    assert record["leaseTransitions"] == 0
    assert record["leaseDurationSeconds"] == 1
    for field in ("acquireTime", "renewTime"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record[field])
    await one.end()


async def test_a_leader_renews_and_keeps_the_time_it_acquired(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one")
    await one.leads()
    first = spec(api)
    await until(lambda: spec(api)["renewTime"] != first["renewTime"])
    assert spec(api)["acquireTime"] == first["acquireTime"]
    assert spec(api)["leaseTransitions"] == 0
    await one.end()


@pytest.mark.long
async def test_a_leader_renews_without_reading_first(api: FakeApi, session: Session) -> None:
    one = Worker(session, "one", duration_s=6.0)  # a renewal that fails would be looked after
    await one.leads()
    api.asked.clear()
    await until(lambda: api.verbs("leases").count("update") > 2)
    assert "get" not in api.verbs("leases")
    await one.end()


@pytest.mark.long
async def test_a_leader_waits_for_a_slow_server_as_long_as_its_lease_allows(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one", duration_s=6.0)
    await one.leads()
    first = spec(api)
    api.answers_after_s = 1.5  # longer than from one renewal to the next
    await until(lambda: spec(api)["renewTime"] != first["renewTime"])
    await one.end()


async def test_a_leader_reads_a_lease_that_was_changed_or_deleted_and_goes_on(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one", duration_s=5.0)
    await one.leads()
    lease = api.objects["leases"][KEY]
    labelled = lease["metadata"] | {"labels": {"by": "somebody"}}
    api.put("leases", {"metadata": labelled, "spec": spec(api)})
    await until(lambda: spec(api)["renewTime"] != lease["spec"]["renewTime"])
    assert api.objects["leases"][KEY]["metadata"]["labels"] == {"by": "somebody"}
    del api.objects["leases"][KEY]
    await until(lambda: KEY in api.objects["leases"])
    assert spec(api)["holderIdentity"] == "one"
    assert not one.stopped.is_set()
    await one.end()


@pytest.mark.long
async def test_of_two_candidates_one_leads_and_the_other_takes_over_on_release(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one", duration_s=LONG_S)  # not by expiry, then
    await one.leads()
    two = Worker(session, "two", duration_s=5.0)  # it looks as often as that lets it
    await until(lambda: api.verbs("leases").count("get") > 3)
    assert not two.working.is_set()
    await one.end()
    assert one.stopped.is_set()
    await two.leads()
    assert spec(api)["holderIdentity"] == "two"
    assert spec(api)["leaseTransitions"] == 1
    await two.end()
    assert spec(api)["holderIdentity"] == ""


async def test_a_dead_holders_lease_is_taken_over_whatever_its_renew_time(
    api: FakeApi, session: Session
) -> None:
    dead = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": 1,
        "renewTime": "2999-01-01T00:00:00.000000Z",
        "leaseTransitions": 4,
    }
    api.put("leases", {"metadata": {"name": "steward", "namespace": "fettle-system"}, "spec": dead})
    two = Worker(session, "two")
    await two.leads()
    assert spec(api)["leaseTransitions"] == 5
    await two.end()


async def test_a_leader_that_cannot_renew_stops_working_and_leads_again_later(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one")
    await one.leads()
    await api.stop()
    async with asyncio.timeout(PATIENCE_S):
        await one.stopped.wait()
    await api.start()
    await one.leads()
    await one.end()


@pytest.mark.long
@pytest.mark.parametrize("renewals", [0, 2])
async def test_a_leader_that_cannot_renew_stops_before_another_may_take_over(
    renewals: int, api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one", duration_s=4.0)
    await one.leads()
    await until(lambda: api.verbs("leases").count("update") >= renewals)
    api.answers_nothing = True
    async with asyncio.timeout(spec(api)["leaseDurationSeconds"]):
        await one.stopped.wait()
    await one.end()


async def test_a_leader_that_another_replaced_stops_working(api: FakeApi, session: Session) -> None:
    one = Worker(session, "one")
    await one.leads()
    usurped = spec(api) | {"holderIdentity": "other", "leaseDurationSeconds": 3600}
    lease = api.objects["leases"][KEY]
    api.put("leases", {"metadata": lease["metadata"], "spec": usurped})
    async with asyncio.timeout(PATIENCE_S):
        await one.stopped.wait()
    await one.end()
    assert spec(api)["holderIdentity"] == "other", "what is not ours is not given back"


async def test_a_refused_read_of_the_lease_is_tried_again(api: FakeApi, session: Session) -> None:
    api.forbidden = {("get", "leases")}
    one = Worker(session, "one")
    await until(lambda: api.verbs("leases").count("get") > 1)
    api.forbidden = set()
    await one.leads()
    await one.end()


async def test_work_that_ends_releases_the_lease(api: FakeApi, session: Session) -> None:
    async def nothing() -> None:
        return

    await lead(session, "fettle-system", "steward", "one", LONG_S, nothing, release_s=60.0)
    assert spec(api)["holderIdentity"] == ""


async def test_whoever_stands_hears_who_leads(api: FakeApi, session: Session) -> None:
    one, heard = Worker(session, "one"), list[str]()

    async def nothing() -> None:
        return

    await one.leads()
    standing = asyncio.create_task(
        lead(session, "fettle-system", "steward", "two", LONG_S, nothing, heard.append)
    )
    await until(lambda: heard == ["one"])
    await one.end()
    await standing
    assert heard[-1] == "two"


async def test_work_that_fails_releases_the_lease_and_raises(
    api: FakeApi, session: Session
) -> None:
    async def failing() -> None:
        raise RuntimeError("broken work")

    with pytest.raises(RuntimeError, match="broken work"):
        await lead(session, "fettle-system", "steward", "one", LONG_S, failing, release_s=60.0)
    assert spec(api)["holderIdentity"] == ""


async def test_releasing_a_lease_does_not_wait_for_a_server_that_hangs(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one", duration_s=3600.0, release_s=0.05)
    await one.leads()
    api.answers_nothing = True
    async with asyncio.timeout(PATIENCE_S):
        await one.end()


@pytest.mark.parametrize("verb", ["create", "update"])
async def test_a_lease_acquired_while_being_stopped_is_released(
    verb: str, api: FakeApi, session: Session
) -> None:
    if verb == "update":
        earlier = Worker(session, "earlier")
        await earlier.leads()
        await earlier.end()
    api.answers_lost = {verb}
    one = Worker(session, "one", duration_s=LONG_S)
    await until(
        lambda: KEY in api.objects.get("leases", {}) and spec(api)["holderIdentity"] == "one"
    )
    api.answers_lost = set()
    await one.end()
    assert not one.working.is_set()
    assert spec(api)["holderIdentity"] == ""


async def test_a_candidate_that_never_wrote_a_lease_sends_nothing_when_stopped(
    api: FakeApi, session: Session
) -> None:
    one = Worker(session, "one", duration_s=3600.0)  # not renewed meanwhile
    await one.leads()
    two = Worker(session, "two", duration_s=3600.0)
    await until(lambda: api.verbs("leases").count("get") > 1)
    asked = len(api.asked)
    await two.end()
    assert len(api.asked) == asked
    await one.end()


async def test_a_lease_that_could_not_be_created_is_not_released(
    api: FakeApi, session: Session
) -> None:
    api.forbidden = {("create", "leases")}
    with capture_logs() as logs:
        one = Worker(session, "one", duration_s=LONG_S)
        await until(lambda: "create" in api.verbs("leases"))
        await until(lambda: bool(logs))
        await one.end()
    assert [log["event"] for log in logs] == ["cannot acquire or renew the lease"]


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
def test_any_body_is_a_lease_or_an_error_of_one_line(body: bytes) -> None:
    message = ""
    try:
        assert isinstance(read_lease(body)["spec"], dict)
    except ValueError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1


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
def test_a_lease_with_an_invalid_field_is_refused_by_that_field(spec: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_lease(json.dumps({"metadata": {}, "spec": spec}).encode())


def test_a_lease_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ValueError, match="recursion"):
        read_lease(b'{"spec":' + b"[" * 100_000)


@pytest.mark.long
@settings(max_examples=40)
@given(SPECS)
async def test_with_any_lease_a_candidate_leads_or_goes_on_trying(spec: Any) -> None:
    metadata = {"name": "steward", "namespace": "ns"}
    async with fake_api() as api:
        api.put("leases", {"metadata": metadata, "spec": spec})
        with tempfile.TemporaryDirectory() as folder:
            session = await Session.open(api.kubeconfig(Path(folder)))
        async with session:
            elector = LeaderElector(session, "ns", "steward", "one", 2.0)
            with suppress(TimeoutError):
                await asyncio.wait_for(elector.acquire(), 0.1)
            await elector.release()
