"""What the steward writes into the status of DevicePolicies, against an API server: nothing twice,
nothing without end, and nothing that stops it where it may not write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.api import kinds
from fettle.client import Session
from fettle.config import Settings
from fettle.model import BUILT_IN, Policy
from fettle.steward import PolicyStatuses, policy_statuses
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.scheduling.clusters import Cluster, kept
from tests.waiting import until

NOW = 1_790_000_000.0
IN_VAIN = {"placement": {"degraded": "Prefer", "minScore": 0.9}}
CANNOT = "DevicePolicy gold: Expected `float`, got `str` - at `$.spec.placement.minScore`"


class Policies:
    """DevicePolicies as the API server has them, and what the leader's view shows of them."""

    def __init__(self, api: FakeApi, session: Session) -> None:
        self._api = api
        self._session = session
        self.cluster = Cluster()
        self.at = NOW
        self.failing = ""

    def show(
        self, specs: Mapping[str, Any] = {}, unreadable: Mapping[str, str] = {}, **fields: Any
    ) -> None:
        """Policies by name, and why others cannot be read."""
        stored = self._api.objects.setdefault("devicepolicies", {})
        for name in {*specs, *unreadable} - stored.keys():
            self._api.put("devicepolicies", {"metadata": {"name": name, "generation": 1}})
        policies = {
            name: msgspec.convert({"name": name, **spec}, Policy) for name, spec in specs.items()
        }
        texts = {f"DevicePolicy {name}": text for name, text in unreadable.items()}
        served = {kinds.POLICY.name: True}
        self.cluster.show({}, policies=policies, quarantined=texts, served=served)

    def now(self) -> float:
        """Fails while the policy is judged that was asked for last, if that is `failing`."""
        if self._api.asked[-1].target.name == self.failing:
            raise ArithmeticError(self.failing)
        return self.at

    def status(self, name: str) -> Any:
        return self._api.objects["devicepolicies"][name].get("status")

    def says(self, name: str) -> tuple[str, str]:
        """Reason and message."""
        (condition,) = (self.status(name) or {}).get("conditions") or [{}]
        return condition.get("reason", ""), condition.get("message", "")

    @asynccontextmanager
    async def led(self) -> AsyncIterator[PolicyStatuses]:
        made = PolicyStatuses(
            self._session,
            self.cluster.answers,
            Settings(),
            clock=self.now,
            look_s=0.01,
            longest_pause_s=0.05,
        )
        async with kept(made.keep()):
            yield made


@pytest.fixture
def policies(api: FakeApi, session: Session) -> Policies:
    return Policies(api, session)


async def test_a_policy_says_whether_it_is_read_by_whom_and_since_when(policies: Policies) -> None:
    policies.show({"own": {}})
    async with policies.led():
        await until(lambda: policies.says("own") == ("AllOfIt", ""))
    assert policies.status("own") == {
        "readBy": policy_statuses.READ_BY,
        "conditions": [
            {
                "type": "Read",
                "status": "True",
                "reason": "AllOfIt",
                "lastTransitionTime": "2026-09-21T14:13:20Z",
                "observedGeneration": 1,
            }
        ],
    }


async def test_what_is_wrong_is_said_with_its_field_and_goes_when_it_is_right(
    policies: Policies,
) -> None:
    policies.show({"own": IN_VAIN}, {"gold": CANNOT})
    async with policies.led():
        await until(lambda: policies.says("gold") == ("Unreadable", CANNOT))
        await until(lambda: policies.says("own")[0] == "InPart")
        assert policies.says("own")[1].startswith("placement.minScore: 0.9 refuses every device")
        policies.at += 60
        policies.show({"own": {}, "gold": {}})
        await until(lambda: {policies.says(n)[0] for n in ("own", "gold")} == {"AllOfIt"})
    (condition,) = policies.status("own")["conditions"]
    assert condition["lastTransitionTime"] == "2026-09-21T14:14:20Z"
    assert "message" not in condition


async def test_advice_about_what_has_an_effect_is_nothing_wrong(policies: Policies) -> None:
    policies.show({"own": {"failure": {"onDeviceFailure": "Evict"}}})
    async with policies.led():
        await until(lambda: policies.says("own") == ("AllOfIt", ""))


async def test_another_leader_writes_nothing_that_is_there_already(
    api: FakeApi, policies: Policies
) -> None:
    policies.show(dict.fromkeys(BUILT_IN, IN_VAIN))
    async with policies.led():
        await until(lambda: all(policies.status(name) for name in BUILT_IN))
    writes = api.written
    policies.at += 3600
    async with policies.led():
        await until(lambda: api.verbs("devicepolicies").count("get") == 2 * len(BUILT_IN))
    assert api.written == writes


async def test_a_view_with_other_changes_asks_for_nothing(api: FakeApi, policies: Policies) -> None:
    policies.show({"own": {}})
    async with policies.led():
        await until(lambda: policies.status("own"))
        asked = len(api.asked)
        policies.show({"own": {}})
        policies.show({"own": {}, "other": {}})
        await until(lambda: policies.status("other"))
    assert [(one.verb, one.target.name) for one in api.asked[asked:]] == [
        ("get", "other"),
        ("patch", "other"),
    ]


async def test_however_much_is_wrong_the_message_fits_the_definition(policies: Policies) -> None:
    rules = {f"FTL9{number:02}": "Deny" for number in range(64)}
    policies.show({"own": {"validation": {"rules": rules}}}, {"gold": "x" * 100_000})
    async with policies.led():
        await until(lambda: policies.says("own")[0] and policies.says("gold")[0])
    assert policies.says("own")[1].endswith("; and 56 more")
    assert all(len(policies.says(name)[1]) <= 2048 for name in ("own", "gold"))


async def test_without_the_right_it_is_said_once_and_the_rest_goes_on(
    api: FakeApi, policies: Policies
) -> None:
    api.forbidden = {("get", "devicepolicies")}
    policies.show({"own": {}, "other": {}})
    with capture_logs() as logs:
        async with policies.led() as statuses:
            await until(lambda: len(api.verbs("devicepolicies")) > 2)
            (note,) = statuses.notes()
            assert "deploy/rbac/ of this version" in note
            api.forbidden.clear()
            await until(lambda: policies.status("own") and policies.status("other"))
            await until(lambda: not statuses.notes())
    assert len(logs) == 1


async def test_a_definition_without_a_status_is_said_once(api: FakeApi, policies: Policies) -> None:
    policies.show({"own": {}})
    api.unserved = {"devicepolicies"}
    async with policies.led() as statuses:
        await until(lambda: statuses.notes())
        assert "deploy/crds/ and deploy/rbac/ of this version" in statuses.notes()[0]


async def test_a_policy_that_is_deleted_meanwhile_stops_nothing(
    api: FakeApi, policies: Policies
) -> None:
    policies.show({"gone": {}, "own": {}})
    api.remove("devicepolicies", "gone")
    async with policies.led() as statuses:
        await until(lambda: policies.status("own"))
        assert statuses.notes() == []


async def test_a_policy_made_by_kubectl_apply_gets_its_status(
    api: FakeApi, policies: Policies
) -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    metadata = {"name": "applied", "generation": 1, "annotations": annotations}
    api.put("devicepolicies", {"metadata": metadata})
    policies.show({"applied": {}})
    async with policies.led():
        await until(lambda: policies.says("applied") == ("AllOfIt", ""))


async def test_a_policy_on_which_something_fails_keeps_no_other_from_its_status(
    policies: Policies,
) -> None:
    policies.failing = "a"
    policies.show({"a": {}, "b": {}, "c": {}})
    async with policies.led():
        await until(lambda: policies.status("b") and policies.status("c"))
        assert not policies.status("a")
        policies.failing = ""
        await until(lambda: policies.status("a"))
