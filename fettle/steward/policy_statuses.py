"""Writes into the status of DevicePolicies whether the leader reads them, and what is wrong with
them: else that is only in the log, which their authors do not see.

Also in mode `observe`: as with DeviceHealth, nothing follows from what is written here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from fettle import __version__
from fettle.api import POLICY_READ, PolicyCondition, PolicyStatus, StoredPolicyStatus, kinds
from fettle.client import Session, decoded
from fettle.cluster import View
from fettle.config import Settings
from fettle.health import one_line
from fettle.lint import without_effect
from fettle.model import ClusterError, NotFound, Policy, utc, why_unreadable
from fettle.scheduling import Answers
from fettle.steward.paced_writes import LONGEST_PAUSE_S, PacedWrites

LOOK_S = 1.0
WRITES_PER_S = 10.0
MOST_TOLD = 8
"""Of what is wrong with a policy."""
LONGEST_READ_BY = 64
"""`maxLength` of the field in deploy/crds/."""
ALL_READ = "AllOfIt"
PARTLY_READ = "InPart"
UNREADABLE = "Unreadable"
READ_BY = f"fettle {__version__}"[:LONGEST_READ_BY]
RIGHTS = "deploy/crds/ and deploy/rbac/ of this version have what it takes"


class PolicyVerdict(NamedTuple):
    """What is to be told of a policy: a reason of the condition, and what is wrong, in words."""

    reason: str
    message: str = ""


def status_of(verdict: PolicyVerdict, stored: StoredPolicyStatus, now: float) -> PolicyStatus:
    """The status that tells it; that which is stored, if that does already."""
    is_read = "True" if verdict.reason == ALL_READ else "False"
    before = stored.status or PolicyStatus()
    there = next((one for one in before.conditions if one.type == POLICY_READ), None)
    since = utc(int(now))
    if there is not None and there.status == is_read:
        since = there.last_transition_time or since
    condition = PolicyCondition(
        type=POLICY_READ,
        status=is_read,
        reason=verdict.reason,
        message=verdict.message,
        last_transition_time=since,
        observed_generation=stored.metadata.generation,
    )
    return PolicyStatus(read_by=READ_BY, conditions=(condition,))


class PolicyStatuses:
    """`keep` while leading; `notes` say what is amiss."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        look_s: float = LOOK_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._look_s = look_s
        self._session = session
        self._answers = answers
        self._settings = settings
        self._clock = clock
        self._judged: dict[str, Policy | str] = {}
        """The policies whose status is right; of one that cannot be read, why."""
        self._writes = PacedWrites(
            "the status of DevicePolicies cannot be written",
            RIGHTS,
            per_s=WRITES_PER_S,
            longest_pause_s=longest_pause_s,
        )
        self.notes = self._writes.notes

    async def keep(self) -> None:
        """Until cancelled."""
        publisher = self._answers.publisher
        await publisher.keep_looking("statuses of policies", self._look, every_s=self._look_s)

    async def _look(self, view: View) -> float | None:
        if not view.served.get(kinds.POLICY.name):
            return None
        there = dict(_installed(view))
        self._judged = {name: one for name, one in self._judged.items() if name in there}
        due = [name for name in sorted(there) if self._judged.get(name) != there[name]]
        failures: list[Exception] = []
        is_all = await self._writes.do(
            partial(self._attempt, name, there[name], failures) for name in due
        )
        if failures:
            raise failures[0]
        return None if is_all else self._look_s

    async def _attempt(self, name: str, installed: Policy | str, failures: list[Exception]) -> None:
        """What fails on one policy keeps no other from its status."""
        try:
            await self._write(name, installed)
        except ClusterError:
            raise
        except Exception as error:
            error.add_note(f"DevicePolicy {name}")
            failures.append(error)

    async def _write(self, name: str, installed: Policy | str) -> None:
        path = kinds.POLICY.path_of(name, subresource="status")
        with suppress(NotFound):  # deleted meanwhile
            verdict = await self._judge(installed)
            stored = decoded(
                await self._session.get(path), StoredPolicyStatus, f"DevicePolicy {name}"
            )
            status = status_of(verdict, stored, self._clock())
            if status != stored.status:
                await self._session.patch(path, {"status": msgspec.to_builtins(status)})
        self._judged[name] = installed

    async def _judge(self, installed: Policy | str) -> PolicyVerdict:
        if isinstance(installed, str):
            return PolicyVerdict(UNREADABLE, one_line(installed))
        wrong = await self._answers.ignored(installed)
        wrong += without_effect(installed, self._settings)
        more = [f"and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
        message = "; ".join([*map(one_line, wrong[:MOST_TOLD]), *more])
        return PolicyVerdict(PARTLY_READ if wrong else ALL_READ, message)


def _installed(view: View) -> Iterator[tuple[str, Policy | str]]:
    """By name: the policy, or why it cannot be read."""
    yield from view.policies.items()
    for name in view.quarantined:
        kind, _, key = name.partition(" ")
        if kind == kinds.POLICY.name:
            yield key, why_unreadable(key, view.quarantined)
