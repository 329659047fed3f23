"""What the decisions of some days amount to: whom Fettle kept, or would have kept, from what, and
where it was or would have been wrong. Pure: decisions → plain data.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from fettle.model import Mode, utc
from fettle.pacing import pause
from fettle.records.decisions import ENDED, PLACING, Became, Decided, Decision, Placed, Verb

REPORT_VERSION = 1
RAN_WELL_S = 3600.0
"""A pod that still runs after so long on what Fettle refuses ran well."""


def make_report(decisions: Iterable[Decision], since: float, now: float) -> dict[str, Any]:
    """Of decisions that were said, or of pods that ran, after `since`. Times in Unix seconds."""
    by_pod: dict[str, list[Decision]] = defaultdict(list)
    reviews: list[Decision] = []
    earliest = now
    for one in decisions:
        earliest = min(earliest, one.first)
        if one.verb in PLACING and one.uid:
            by_pod[one.uid].append(one)
        elif one.last >= since and one.verb in (Verb.MUTATE, Verb.VALIDATE):
            reviews.append(one)
        pause()
    pods = []
    for found in by_pod.values():
        pods.append(_OnePod(found, since, now))
        pause()
    pods = [pod for pod in pods if pod.last_alive >= since]
    landed = [pod.landed() for pod in pods if pod.is_on_refused]
    withheld = [row for row in landed if row["mode"] != Mode.ENFORCE]
    return {
        "version": REPORT_VERSION,
        "since": since,
        "until": now,
        "recordsSince": earliest,
        "pods": len(pods),
        "podsByMode": Counter(str(pod.newest.mode) for pod in pods),
        "landedOnRefused": _latest_first(landed),
        "keptAway": _kept_away(pods),
        "byDay": _by_day(pods),
        "deviceHours": {
            "total": round(sum(row["deviceHours"] for row in withheld), 2),
            "byPolicy": _hours_by_policy(withheld),
        },
        "waiting": _latest_first([pod.waiting() for pod in pods if pod.was_refused]),
        "undecided": _undecided(pods),
        "wrong": {
            "ranWell": [row for row in _latest_first(landed) if row["ranWell"]],
            "failedUnseen": _latest_first([pod.landed() for pod in pods if pod.failed_unseen]),
        },
        "webhook": _reviews(reviews),
    }


class _OnePod:
    """The decisions on where one pod goes, in the order in which they were first said."""

    def __init__(self, decisions: Sequence[Decision], since: float, now: float) -> None:
        self.decisions = sorted(decisions, key=lambda one: one.first)
        self.newest = self.decisions[-1]
        self._since, self._now = since, now

    @property
    def placed(self) -> Placed | None:
        return next((one.placed for one in reversed(self.decisions) if one.placed), None)

    @property
    def became(self) -> Became:
        return self.newest.became or Became.PENDING

    @property
    def ended_at(self) -> float | None:
        return self.newest.became_at if self.became in ENDED else None

    @property
    def last_alive(self) -> float:
        return self.ended_at or self._now

    @property
    def is_on_refused(self) -> bool:
        return self.placed is not None and bool(self.placed.reasons)

    @property
    def failed_unseen(self) -> bool:
        """Whether it failed where Fettle saw nothing that it would have refused."""
        return self.became is Became.FAILED and self.placed is not None and not self.placed.reasons

    @property
    def was_refused(self) -> bool:
        """Whether every node that was asked about was, or would have been, refused."""
        return any(one.decided is Decided.REFUSED for one in self.decisions)

    def _row(self, mode: Mode) -> dict[str, Any]:
        one = self.newest
        return {
            "pod": one.key,
            "owner": one.owner,
            "policy": one.policy,
            "mode": str(mode),
            "became": str(self.became),
            "end": one.end,
        }

    def landed(self) -> dict[str, Any]:
        """Where it was bound, and what Fettle said of that."""
        placed = self.placed
        assert placed is not None
        ran_s = max(0.0, self.last_alive - max(placed.at, self._since))
        still = self.became is Became.RUNNING and self._now - placed.at >= RAN_WELL_S
        return {
            **self._row(self.newest.mode),
            "node": placed.node,
            "at": placed.at,
            "until": self.ended_at,
            "reasons": list(placed.reasons),
            "why": placed.why,
            "devices": list(placed.refused_devices),
            "deviceHours": round(ran_s / 3600 * placed.withheld, 2),
            "ranWell": self.became is Became.SUCCEEDED or still,
            "sound": placed.sound,
        }

    def waiting(self) -> dict[str, Any]:
        """How long it waited, or would have; `until` None: it still does, or would."""
        first = next(one for one in self.decisions if one.decided is Decided.REFUSED)
        if first.mode is Mode.ENFORCE:
            until = self.placed.at if self.placed is not None else self.ended_at
        else:
            until = first.allowed_at
        return {
            **self._row(first.mode),
            "at": first.first,
            "until": until,
            # A pod that ended has not shown how much longer it would have waited.
            "seconds": round((until or self.last_alive) - first.first, 1),
            "nodes": first.nodes,
            "reasons": first.reasons,
            "why": first.why,
        }


def _latest_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -row["at"])


def _kept_away(pods: Iterable[_OnePod]) -> list[dict[str, Any]]:
    """Pods for which some nodes were, or would have been, refused, by policy, mode and reason."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for pod in pods:
        codes: dict[tuple[str, str, str], int] = {}
        for one in pod.decisions:
            for code, nodes in one.reasons.items():
                key = one.policy, str(one.mode), code
                codes[key] = max(nodes, codes.get(key, 0))
        for key, nodes in codes.items():
            policy, mode, code = key
            row = found.setdefault(
                key,
                {
                    "policy": policy,
                    "mode": mode,
                    "reason": code,
                    "pods": 0,
                    "nodes": 0,
                    "became": Counter(),
                },
            )
            row["pods"] += 1
            row["nodes"] = max(row["nodes"], nodes)
            row["became"][str(pod.became)] += 1
        pause()
    return sorted(found.values(), key=lambda row: -row["pods"])


def _by_day(pods: Iterable[_OnePod]) -> list[dict[str, Any]]:
    """Pods by the day (UTC) on which Fettle first spoke of them: for how many it refused nodes, how
    many were bound to what it refuses all the same, and how many were refused everywhere."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        day = found[f"{utc(pod.decisions[0].first):%Y-%m-%d}"]
        day["pods"] += 1
        day["keptAway"] += any(one.reasons for one in pod.decisions)
        day["landedOnRefused"] += pod.is_on_refused
        day["waited"] += pod.was_refused
        pause()
    return [{"day": day, **counts} for day, counts in sorted(found.items())]


def _hours_by_policy(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    hours: dict[str, float] = defaultdict(float)
    for row in rows:
        hours[row["policy"]] += row["deviceHours"]
    return {policy: round(sum_, 2) for policy, sum_ in sorted(hours.items())}


def _undecided(pods: Iterable[_OnePod]) -> dict[str, Any]:
    codes: Counter[str] = Counter()
    on = 0
    for pod in pods:
        for code in {code for one in pod.decisions for code in one.undecided}:
            codes[code] += 1
        on += pod.placed is not None and pod.placed.undecided
    return {"podsByReason": dict(codes.most_common()), "podsPlacedSo": on}


def _reviews(reviews: Iterable[Decision]) -> list[dict[str, Any]]:
    """What the webhook did or would have done, by policy, mode and rule."""
    found: Counter[tuple[str, str, str, str, str]] = Counter()
    for one in reviews:
        for rule in one.reasons or ("",):
            found[str(one.decided), one.kind, one.policy, str(one.mode), rule] += one.count
    return [
        {
            "decided": decided,
            "kind": kind,
            "policy": policy,
            "mode": mode,
            "rule": rule,
            "count": count,
        }
        for (decided, kind, policy, mode, rule), count in found.most_common()
    ]
