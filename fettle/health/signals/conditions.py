"""What a Node's conditions say: faults, silence, and what is over, by the polarity and weights of
the rules. NVSentinel's conditions are read down to the device."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from fettle.api import core
from fettle.api.meta import Condition, unix_s
from fettle.health.signals import nvsentinel, patterns, xids
from fettle.health.signals.reports import (
    Fault,
    NodeReport,
    in_steps,
    is_part,
    node_reporter,
    one_line,
)
from fettle.health.signals.rule_rows import ConditionRow, rule_of
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    OWN_CONDITIONS,
    OWN_PREFIX,
    UNKNOWN_SCORE,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    Source,
    SourceKind,
    Subject,
    UnitId,
    UnknownSignal,
    utc,
)
from fettle.pacing import pause

CONDITIONS = "status.conditions"
MOST_UNKNOWN_SIGNALS = 16
"""So many labels, so many annotations, and so many XIDs and reasons of one Node are listed at
most."""
_MOST_TOLD = 16
"""So many XIDs of one subject are told beside another one."""
MISSED_HEARTBEATS = 3
"""How many heartbeats a producer may miss before it counts as silent."""
_RENEWED_TOGETHER_S = 30.0
UNKNOWN_WEIGHT = 1.0 - UNKNOWN_SCORE
_OF_OTHERS = frozenset(("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"))
"""Kubernetes itself taints the node for these conditions."""
_UNLISTED = {
    status: ConditionRow(
        name=f"unlisted-{status}",
        type="*",
        faulty=status == "True",
        family=Family.DRIVER,
        weight=0.0,
        xid=xids.KERNEL_LOG,
        source="the driver's own line is about a fault, whatever the condition is",
    )
    for status in ("True", "False")
}
"""Stands for conditions that no rule names, if they quote the driver's log: by their status, since
which one means a fault is not known."""
_JOINED, _MOST_PARTS = "; ", 64
"""Between the findings of EKS's agent in one message."""
_MONITOR_BEFORE_READY_S = 180.0
"""How long before its node is ready a monitor may say what it found after the boot."""
_OF_KUBELET = "Ready"
_SCHEDULED = (
    r"\b[A-Z][a-z]+ Scheduled: ([A-Z][a-z]{2}, [0-9]{1,2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT)"
)
"""As AKS's node-problem-detector repeats `NotBefore` of Azure's scheduled events
(Azure/karpenter-provider-azure pkg/controllers/node/interruption)."""


def of_conditions(
    node: core.Node, rules: SignalRules, now: float, *, is_remediated: bool
) -> NodeReport:
    """Faults, by the polarity of the rules. An XID in the driver's own words counts under every
    condition.

    A status that is neither True nor False is neither a fault nor an all-clear. If the producer of
    a condition has fallen silent, the condition is no all-clear either; the fault that it last
    reported goes stale, or is nothing if the node was away since. A fault from before a reboot is
    over.
    """
    status = node.status
    conditions = []
    unknown_signals = []
    settled = _no_longer_planned(node, rules)
    for condition in (status.conditions if status is not None else None) or ():
        pause()
        if condition.type.startswith((OWN_PREFIX, OWN_CONDITIONS)):
            continue
        if (row := rules.condition(condition.type, condition.reason)) is not None:
            conditions.append((condition, row))
        elif condition.type not in _OF_OTHERS:
            if (row := _UNLISTED.get(condition.status)) is not None:
                if xids.mentions(row.xid, "", condition.message):
                    conditions.append((condition, row))
                elif not _is_cut(condition, row):
                    settled.add(_source(condition))
            if not rules.names_condition(condition.type):
                unknown_signals.append(
                    UnknownSignal(one_line(condition.type), one_line(condition.status))
                )
    messages = {
        condition.type: nvsentinel.parse(condition.message)
        for condition, row in conditions
        if row.format == "nvsentinel" and _is_faulty(condition, row)
    }
    # Names that one condition gives a GPU hold for the entries of all others.
    known = nvsentinel.names(e for message in messages.values() for e in message.entries)
    reader = _ConditionReader(node, rules, now, known)
    kubelet = _kubelet(node)
    reported: list[Fault] = []
    unknown: list[Evidence] = []
    silent: dict[float, list[tuple[Condition, ConditionRow]]] = {}
    stale: list[Evidence] = []
    renewed: dict[Source, float] = {}
    for condition, row in conditions:
        pause()
        if _is_faulty(condition, row) and _is_from_before(condition, row, node):
            # The reboot was the all-clear: nobody will withdraw the condition.
            settled.add(_source(condition))
            continue
        silent_s = _silent_s(condition, row, kubelet, now)
        message = messages.get(condition.type)
        faults = tuple(reader.faults(condition, row, message))
        if silent_s is not None:
            renewed_at = unix_s(condition.last_heartbeat_time, now)
            silent.setdefault(renewed_at, []).append((condition, row))
            reported += (f for f in faults if f.evidence.kind is EvidenceKind.DECAYING)
            if not _was_away_since(kubelet, renewed_at):
                levels = (e for _, e in faults if e.kind is EvidenceKind.LEVEL)
                stale += (msgspec.structs.replace(f, observed_at=now - silent_s) for f in levels)
        elif condition.status not in ("True", "False"):
            unknown += reader.unknown(condition, row)
        else:
            reported += faults
            if row.heartbeat_s is not None or faults:
                at = unix_s(condition.last_heartbeat_time or condition.last_transition_time, 0.0)
                renewed[_source(condition)] = (
                    0.0 if _was_away_since(kubelet, at + _MONITOR_BEFORE_READY_S) else at
                )
            # A text that was cut off may leave out devices, so it is no all-clear for them.
            if not (_is_cut(condition, row) if message is None else message.cut_off):
                settled.add(_source(condition))
    unknown += (reader.silence(renewed_at, those) for renewed_at, those in _together(silent))
    remediated = tuple(f for f in reported if f.identity) if is_remediated else None
    evidence = (e for identity, e in reported if remediated is None or not identity)
    everything = (*unknown, *evidence)
    unknown_signals += reader.unknown_signals
    return NodeReport(
        everything,
        frozenset(settled),
        tuple(stale),
        remediated,
        tuple(unknown_signals),
        renewed,
    )


def _no_longer_planned(node: core.Node, rules: SignalRules) -> set[Source]:
    """Planned work is over once its condition is removed."""
    conditions = (node.status.conditions if node.status is not None else None) or ()
    if is_part(node, CONDITIONS):
        return set()
    gone = rules.maintenance.difference(condition.type for condition in conditions)
    return {Source(SourceKind.CONDITION, type_) for type_ in gone}


def _is_faulty(condition: Condition, row: ConditionRow) -> bool:
    return condition.status == ("True" if row.faulty else "False")


def _is_from_before(condition: Condition, row: ConditionRow, node: core.Node) -> bool:
    """Whether a condition states that it is about another boot than the node's."""
    said = row.stated_boot(condition.message)
    info = node.status.node_info if node.status is not None else None
    now = info.boot_id if info is not None else ""
    return bool(said and now) and _plain(said) != _plain(now)


def _plain(boot_id: str) -> str:
    """The kernel writes it with hyphens, the journal without."""
    return boot_id.replace("-", "").lower()


def _is_cut(condition: Condition, row: ConditionRow) -> bool:
    """Whether XIDs may be missing at the end of the message."""
    ends = condition.message.rstrip()[-3:]
    return bool(row.xid) and _is_faulty(condition, row) and (ends == "..." or ends.endswith("…"))


def _silent_s(
    condition: Condition, row: ConditionRow, kubelet: Condition | None, now: float
) -> float | None:
    """For how long a condition has counted as no longer renewed, while the kubelet renewed its own;
    None if it is fresh.

    Both times come from the node's clock, so it need not agree with ours. If the kubelet is silent
    as well, the control plane reports that.
    """
    renewed_at = condition.last_heartbeat_time
    if row.heartbeat_s is None or renewed_at is None:
        return None
    if kubelet is None or kubelet.last_heartbeat_time is None:
        return None
    apart_s = (kubelet.last_heartbeat_time - renewed_at).total_seconds()
    silent_s = apart_s - MISSED_HEARTBEATS * row.heartbeat_s
    if silent_s <= 0:
        return None
    if kubelet.status == "Unknown":
        silent_s += max(0.0, now - unix_s(kubelet.last_transition_time, now))
    return silent_s


def _together(
    silent: Mapping[float, list[tuple[Condition, ConditionRow]]],
) -> Iterator[tuple[float, list[tuple[Condition, ConditionRow]]]]:
    """One monitor renews its conditions one after the other: those that were last renewed within
    half a minute, with the first of these times."""
    times = sorted(silent)
    while times:
        first = times[0]
        same = [at for at in times if at - first <= _RENEWED_TOGETHER_S]
        yield first, [one for at in same for one in silent[at]]
        del times[: len(same)]


def _was_away_since(kubelet: Condition | None, at: float) -> bool:
    """Whether the node became ready after this time, as it does when it boots."""
    if kubelet is None or kubelet.status != "True":
        return False
    return unix_s(kubelet.last_transition_time, 0.0) > at


def _kubelet(node: core.Node) -> Condition | None:
    """The condition that the kubelet renews."""
    conditions = (node.status.conditions if node.status is not None else None) or ()
    return next((c for c in conditions if c.type == _OF_KUBELET), None)


def _condition_text(condition: Condition, reason: str = "") -> str:
    why = f" ({reason.strip()})" if reason.strip() else ""
    message = f": {condition.message}" if condition.message.strip() else ""
    return f"{condition.type} is {condition.status}{why}{message}"


def _source(condition: Condition) -> Source:
    return Source(SourceKind.CONDITION, condition.type)


class _Finding(NamedTuple):
    """What a condition says about one subject: the XID `code` (`said` is what it means), or "" if
    it is the row's own word. `about` is the condition in words."""

    subject: Subject
    family: Family
    kind: EvidenceKind
    weight: float
    said: str
    about: str
    code: str = ""
    identity: str = ""

    def text(self, others: list[str]) -> str:
        """`others`: further XIDs of the same subject and family."""
        if not others:
            return self.said + self.about
        listed = f"XID {', '.join(others)}"
        return f"{self.said}, also {listed}{self.about}" if self.said else f"{listed}; {self.about}"


def _of_row(row: ConditionRow, subject: Subject, text: str) -> _Finding:
    return _Finding(subject, row.family, row.kind, row.weight, "", text)


def _dcgm_codes(row: ConditionRow, text: str) -> tuple[str, ...]:
    """DCGM's codes in a text, each once, at most as many as XIDs of one subject are told."""
    found = [each[1] for each in patterns.find_each(row.dcgm, text)] if row.dcgm else []
    return tuple(dict.fromkeys(found))[:_MOST_TOLD]


class _ConditionReader:
    """Evidence from the conditions of one node."""

    def __init__(
        self, node: core.Node, rules: SignalRules, now: float, known: dict[str, tuple[str, ...]]
    ) -> None:
        self._name = node.metadata.name
        self._node = NodeId(self._name)
        self._rules = rules
        self._now = now
        self._known = known
        self.unknown_signals: dict[UnknownSignal, None] = {}
        """XIDs and reasons that no row names."""

    def unknown(self, condition: Condition, row: ConditionRow) -> Iterator[Evidence]:
        if row.unknown_counts:
            text = _condition_text(condition)
            yield self._evidence(
                condition, self._node, row.family, EvidenceKind.UNKNOWN, UNKNOWN_WEIGHT, text
            )

    def silence(
        self, renewed_at: float, silent: Sequence[tuple[Condition, ConditionRow]]
    ) -> Evidence:
        """That nothing is known from conditions that were renewed together for the last time: one
        monitor has several."""
        named = ", ".join(condition.type for condition, _ in silent)
        since = f"{utc(renewed_at):%Y-%m-%d %H:%M:%SZ}"
        text = f"the reporter of {named} has been silent since {since}, though the kubelet has not"
        condition, row = silent[0]
        said = self._evidence(
            condition, self._node, row.family, EvidenceKind.UNKNOWN, UNKNOWN_WEIGHT, text
        )
        return msgspec.structs.replace(said, observed_at=min(renewed_at, self._now))

    def faults(
        self, condition: Condition, row: ConditionRow, message: nvsentinel.NVSentinelMessage | None
    ) -> Iterator[Fault]:
        """For each subject and family, faults of which each names all XIDs of theirs."""
        if not _is_faulty(condition, row):
            return
        if row.listed:
            self._list(condition, f"{condition.type} ({condition.reason.strip() or 'no reason'})")
        if message is None:
            yield from self._as_faults(condition, row, self._by_text(condition, row))
            return
        entries = [*self._placed(message)]
        found = self._by_entry(condition, row, message, entries)
        yield from self._as_faults(condition, row, found)
        if entries and message.cut_off:
            cut = self._rules.signals["cut-off"]
            text = f"{condition.type}: the message is truncated and may concern more devices"
            evidence = self._evidence(
                condition, self._node, cut.family, EvidenceKind.LEVEL, cut.weight, text
            )
            yield Fault("", evidence)

    def _by_text(self, condition: Condition, row: ConditionRow) -> Iterator[_Finding]:
        """All XIDs, each about its GPU if its address is given; else what the row says, and the
        rows of further findings."""
        # Where a row is for types that differ in a number, that may be the XID.
        reason = f"{condition.type} {condition.reason}" if row.is_pattern else condition.reason
        rest = self._rules.unlisted(condition.type)
        form = row.xid or (xids.KERNEL_LOG if row.weight else rest.xid if rest is not None else "")
        found = xids.mentions(form, reason, condition.message) if form else ()
        if not row.xid and not row.weight:  # of others; its own are in its reason
            own = {one.code for one in xids.mentions(form, condition.reason, "")} if form else ()
            found = tuple(one for one in found if one.code not in own)
        subjects: dict[Subject, None] = {}
        for one in found:
            subject = self._unit(one.gpu) if one.gpu else self._node
            subjects[subject] = None
            said = self._of_xid(condition, subject, one.code, one.said, f" ({condition.type})")
            # Its producer calls it a fault, and no row knows it.
            if row.xid and row.weight and one.code not in self._rules.xids:
                said = said._replace(kind=EvidenceKind.UNKNOWN, weight=UNKNOWN_WEIGHT)
            yield said
        text = _condition_text(condition, condition.reason)
        told = _dcgm_codes(row, f"{condition.reason} {condition.message}")
        if told:
            yield from self._by_codes(condition, row, told, text)
        elif row.concludes or not row.xid or not found:
            for each in (row.xid and subjects) or (self._node,):
                yield _of_row(row, each, text)
        for also in self._rules.joined(condition.type, condition.message, row):
            codes = _dcgm_codes(also, condition.message)
            new = [code for code in codes if code not in _dcgm_codes(also, condition.reason)]
            if new:
                yield from self._by_codes(condition, also, new, text)
            elif not codes and not also.names_reason(condition.type, condition.reason):
                yield _of_row(also, self._node, text)
        if rest is not None and row is not rest and self._says_more(condition):
            self._list(condition, f"{condition.type} (joined to {condition.reason.strip()})")
            yield _of_row(rest, self._node, text)

    def _says_more(self, condition: Condition) -> bool:
        """Whether the message joins a finding that no row names to that of the reason."""
        type_, reason = condition.type, condition.reason
        unknown, is_told = 0, False
        for part in condition.message[: patterns.LONGEST].split(_JOINED)[:_MOST_PARTS]:
            rows = [*self._rules.naming(type_, part)]
            unknown += not rows
            is_told = is_told or any(row.names_reason(type_, reason) for row in rows)
        return unknown > (0 if is_told else 1)  # one part is what the reason is about

    def _by_codes(
        self, condition: Condition, row: ConditionRow, codes: Iterable[str], text: str
    ) -> Iterator[_Finding]:
        """What DCGM's codes mean; of one that means nothing by itself, what the condition's row
        says."""
        for code in codes:
            known = self._of_dcgm(condition, self._node, code, f" ({text})")
            yield known if known is not None else _of_row(row, self._node, text)

    def _of_dcgm(
        self, condition: Condition, subject: Subject, code: str, about: str
    ) -> _Finding | None:
        """What it means; None if it has no row, or only says that there was an XID."""
        known = self._rules.dcgm(code)
        if known is None:
            self._list(condition, f"{condition.type}: DCGM {code}")
        if known is None or known.xid:
            return None
        said = f"DCGM error {known.name}: {known.text}"
        return _Finding(subject, known.family, known.kind, known.weight, said, about)

    def _unit(self, gpu: str) -> UnitId:
        names = self._known.get(gpu, (gpu,))
        return UnitId(self._name, nvsentinel.RESOURCE, names[0], names[1:])

    def _placed(
        self, message: nvsentinel.NVSentinelMessage
    ) -> Iterator[tuple[Subject, nvsentinel.NVSentinelEntry]]:
        """Each entry for each of its devices; for the node if it names none, and nothing is cut."""
        for entry in message.entries:
            units = nvsentinel.unit_ids(self._name, entry, self._known)
            for subject in units or (() if entry.cut else (self._node,)):
                yield subject, entry

    def _by_entry(
        self,
        condition: Condition,
        row: ConditionRow,
        message: nvsentinel.NVSentinelMessage,
        placed: list[tuple[Subject, nvsentinel.NVSentinelEntry]],
    ) -> Iterator[_Finding]:
        for subject, entry in placed or [(self._node, entry) for entry in message.entries]:
            yield from self._entry(condition, row, subject, entry)
        if not message.entries:
            yield _of_row(row, self._node, _condition_text(condition, condition.reason))

    def _entry(
        self,
        condition: Condition,
        row: ConditionRow,
        subject: Subject,
        entry: nvsentinel.NVSentinelEntry,
    ) -> Iterator[_Finding]:
        action = self._rules.actions.get(entry.action)
        least = action.least if action is not None else 0.0
        advice = f" (recommended: {entry.action})" if entry.action else ""
        codes = " ".join(entry.codes)
        what = f": {entry.text}" if entry.text else ""
        statement = f"{condition.type} {codes}".strip() + f"{what}{advice}"
        identity = f"{subject} {condition.type} {codes}"
        about = f"; {statement}"
        codes_of_dcgm = [
            code for code in entry.codes if code.startswith(nvsentinel.DCGM) and row.weight
        ]
        told = [self._of_dcgm(condition, subject, code, about) for code in codes_of_dcgm]
        of_codes = [one for one in told if one is not None]
        found = [one for one in of_codes if one.weight] + [
            self._of_xid(
                condition,
                self._unit(one.gpu) if one.gpu and subject == self._node else subject,
                *(one.code, one.said, about),
            )
            for one in self._xids_of(entry, row)
        ]
        if row.concludes or not (found or of_codes):
            found.append(_of_row(row, subject, statement))
        advised = [one._replace(weight=max(one.weight, least)) for one in found]
        # What is no fault of a GPU is none, whatever is advised.
        for one in (*advised, *(one for one in of_codes if not one.weight)):
            yield one._replace(identity=f"{identity} {one.family}")

    def _xids_of(
        self, entry: nvsentinel.NVSentinelEntry, row: ConditionRow
    ) -> tuple[xids.XidMention, ...]:
        """The XIDs of an entry: its codes, or those in its text."""
        if row.xid == nvsentinel.ERROR_CODE:
            return nvsentinel.xids_of(entry)
        named = (code for code in entry.codes if code.startswith(nvsentinel.DCGM))
        names_one = any(known.xid for code in named if (known := self._rules.dcgm(code)))
        form = row.xid or (xids.ANY_FORM if names_one and row.weight else "")
        return xids.mentions(form, "", entry.text) if form else ()

    def _of_xid(
        self, condition: Condition, subject: Subject, code: str, said: str, about: str
    ) -> _Finding:
        if code not in self._rules.xids:
            self._list(condition, f"{condition.type}: XID {code}")
        return _Finding(subject, *self._rules.xid(code, said), about, code)

    def _list(self, condition: Condition, what: str) -> None:
        one = UnknownSignal(one_line(what), one_line(condition.status))
        if len(self.unknown_signals) < MOST_UNKNOWN_SIGNALS:
            self.unknown_signals[one] = None

    def _as_faults(
        self, condition: Condition, row: ConditionRow, findings: Iterable[_Finding]
    ) -> Iterator[Fault]:
        rule = rule_of(SourceKind.CONDITION, row.type)
        standing = self._without_ended(findings)
        codes: dict[object, dict[str, None]] = {}
        for one in standing:
            told = codes.setdefault((one.subject, one.family), {})
            if one.code and len(told) < _MOST_TOLD:
                told[one.code] = None
        for one in standing:
            pause()
            others = [c for c in codes.get((one.subject, one.family), ()) if c != one.code]
            evidence = self._evidence(
                condition, one.subject, one.family, one.kind, one.weight, one.text(others), rule
            )
            if one.family is Family.MAINTENANCE:
                begins_in_s = in_steps(_begins_in_s(row, condition.message, self._now))
                evidence = msgspec.structs.replace(evidence, planned=True, begins_in_s=begins_in_s)
            yield Fault(one.identity, evidence)

    def _without_ended(self, findings: Iterable[_Finding]) -> list[_Finding]:
        """Each finding once, without the XIDs that a later one says are over."""
        standing: dict[tuple[Subject, str], dict[_Finding, None]] = {}
        for one in findings:
            row = self._rules.xids.get(one.code)
            for code in row.ends if row is not None else ():
                standing.pop((one.subject, code), None)
            standing.setdefault((one.subject, one.code), {})[one] = None
        return [one for same in standing.values() for one in same]

    def _evidence(
        self,
        condition: Condition,
        subject: Subject,
        family: Family,
        kind: EvidenceKind,
        weight: float,
        text: str,
        rule: Source | None = None,
    ) -> Evidence:
        return Evidence(
            subject=subject,
            family=family,
            kind=kind,
            weight=weight,
            source=_source(condition),
            rule=rule,
            reporter=node_reporter(self._name),
            said=one_line(text),
            observed_at=unix_s(condition.last_transition_time, self._now),
            half_life_s=self._rules.half_life_s(family),
            planned=kind is EvidenceKind.UNKNOWN and condition.type != _OF_KUBELET,
        )


def _begins_in_s(row: ConditionRow, message: str, now: float) -> float | None:
    """In how many seconds planned work begins: by its message, or else by the row."""
    found = None if row.begins_in_s is None else patterns.search(_SCHEDULED, message)
    if found is None:
        return row.begins_in_s
    try:
        return max(0.0, parsedate_to_datetime(found[1]).timestamp() - now)
    except (ValueError, OverflowError):
        return row.begins_in_s
