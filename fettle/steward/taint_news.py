"""What is told of taints by health: each one that is written, or would be, to the log and the
records of what the steward does; and to people at the node, when pods are kept off a device.
"""

import hashlib
from functools import partial

import structlog

from fettle.api.resource import DeviceTaint
from fettle.client import Event, EventRecorder, Regarding
from fettle.model import DeviceId, Mode
from fettle.records import Act, Recorder
from fettle.scheduling import PlannedTaint

REASON = "DeviceTainted"
"""The Events' reason, an interface."""

_LOG = structlog.get_logger(__name__)


class TaintNews:
    """`mode`: the one that decides whether taints are written."""

    def __init__(self, recorder: Recorder, events: EventRecorder, mode: Mode) -> None:
        self._recorder = recorder
        self._events = events
        self._act = partial(Act, kind="Device", mode=mode)

    def sets(self, rule: str, planned: PlannedTaint, *, changes: bool, written: bool) -> None:
        """A device gets a taint by the rule of this name, or another one than before."""
        device, taint, why = str(planned.device), _named(planned.taint), reason_of(planned)
        said = f"{taint} by DeviceTaintRule {rule}: {why}"
        self._log("taint of a device", rule, written=written, device=device, taint=taint, why=why)
        what = "ChangeTaint" if changes else "TaintDevice"
        self._recorder.acted(self._act(what=what, why=said, key=device), written=written)
        if written and planned.taint.effect != "None":
            self._events.record(_event(rule, planned, why))

    def removes(self, rule: str, device: DeviceId, why: str, *, written: bool) -> None:
        self._log("taint of a device removed", rule, written=written, device=str(device), why=why)
        act = self._act(what="UntaintDevice", why=f"DeviceTaintRule {rule}: {why}", key=str(device))
        self._recorder.acted(act, written=written)

    @staticmethod
    def _log(event: str, rule: str, *, written: bool, why: str, **fields: str) -> None:
        _LOG.info(event if written else f"{event}: not written", rule=rule, reason=why, **fields)


def reason_of(planned: PlannedTaint) -> str:
    """Why a device gets a taint, in words."""
    why = [w.evidence.text for w in planned.health.evidence[:1]]
    return f"{planned.health.state}: {why[0]}" if why else str(planned.health.state)


def _named(taint: DeviceTaint) -> str:
    return f"{taint.key}:{taint.effect}"


def _event(rule: str, planned: PlannedTaint, why: str) -> Event:
    """On the node of the device, or on the rule of a device that is of no single node. One for each
    time that the device becomes so bad."""
    about = Regarding("resource.k8s.io/v1", "DeviceTaintRule", rule)
    if planned.node:
        # As the kubelet's Events, by the name as the uid: `kubectl describe` asks for those too.
        about = Regarding("v1", "Node", planned.node, uid=planned.node)
    taint = planned.taint
    key = f"{rule} {taint.key} {planned.health.since}"
    return Event(
        regarding=about,
        reason=REASON,
        action="Taint",
        note=(
            f"device {planned.device} is {why}; DeviceTaintRule {rule} taints it {_named(taint)}, "
            "so the scheduler gives it to no pod that does not tolerate that"
        ),
        series_key=key,
        type="Warning",
        name=f"{about.name[:236]}.{hashlib.sha256(key.encode()).hexdigest()[:16]}",
    )
