"""Faults that another word of the same source displaces, without an all-clear."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.slices import report_of_slice, report_of_taint_rule
from fettle.model import (
    SOUND,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    ReporterId,
    Source,
    SourceKind,
    State,
    UnitId,
)
from tests.fettle.health.incidents import DEVICE, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import (
    NOW,
    UUID,
    condition,
    node,
    slice_,
    taint,
    taint_rule,
)

KEY = "gpu.nvidia.com/xid"
WORN = "48", "NoSchedule"
GPU = UnitId("gpu-1", "nvidia.com/gpu", UUID)
LATCHED = [xid for xid in RULES.xids if RULES.xid(xid).kind is EvidenceKind.LATCHED]
GONE = [xid for xid in LATCHED if RULES.xid_classes[RULES.xids[xid].class_].gone]
"""Those of which a driver's effect `None` says nothing."""


def publish(book: HealthBook, at: float, *taints: dict[str, Any]) -> Health:
    book.ledger.report(report_of_slice(slice_(*taints), RULES, at), at)
    return of(book, DEVICE, at)


def ready(reason: str, status: str = "False") -> dict[str, Any]:
    """As the EKS node monitoring agent writes it; False is bad."""
    return condition("AcceleratedHardwareReady", status, reason)


def texts(health: Health) -> list[str]:
    return [w.evidence.text for w in health.evidence]


@pytest.mark.parametrize(("first", "then"), [("48", "45"), ("79", "43"), ("48", "63")])
def test_a_taint_whose_last_xid_is_harmless_does_not_clear_the_one_before(
    book: HealthBook, first: str, then: str
) -> None:
    publish(book, NOW, taint(KEY, first))
    displaced = publish(book, NOW + MINUTE, taint(KEY, then, "None"))
    assert (displaced.state, displaced.score) == (State.UNHEALTHY, 0.0)
    before, now = texts(displaced)
    assert before.startswith(f"XID {first}: ")
    assert before.endswith(f"taint {KEY}={first}:NoSchedule; not cleared since")
    assert now.startswith(f"XID {then}: ")
    assert publish(book, NOW + 2 * MINUTE, taint(KEY, then, "None")) is displaced


def test_a_condition_whose_reason_changes_while_it_stays_faulty_clears_nothing(
    book: HealthBook,
) -> None:
    tell(book, node(ready("NvidiaXID79Error")), NOW)
    tell(book, node(ready("NvidiaXID63Error")), NOW + MINUTE)
    health = of(book, NODE, NOW + MINUTE)
    assert (health.state, health.score) == (State.UNHEALTHY, 0.0)
    tell(book, node(ready("Ready", "True")), NOW + 2 * MINUTE)
    assert of(book, NODE, NOW + 2 * MINUTE).state is State.HEALTHY


def test_a_taint_that_is_taken_away_clears_all_that_it_ever_said(book: HealthBook) -> None:
    publish(book, NOW, taint(KEY, "48"))
    publish(book, NOW + 1, taint(KEY, "63", "None"))
    cleared = publish(book, NOW + 2)
    assert (cleared.state, cleared.score) == (State.HEALTHY, 0.88)
    assert texts(cleared) == [
        "was until recently: XID 48: double-bit ECC error (WORKFLOW_XID_48); "
        "taint gpu.nvidia.com/xid=48:NoSchedule"
    ]


def test_a_reboot_clears_what_a_later_word_had_displaced(book: HealthBook) -> None:
    tell(book, node(ready("NvidiaXID79Error")), NOW)
    tell(book, node(ready("NvidiaXID63Error")), NOW + MINUTE)
    tell(book, node(ready("NvidiaXID63Error"), boot="boot-2"), NOW + 2 * MINUTE)
    health = of(book, NODE, NOW + 2 * MINUTE)
    assert health.state is not State.UNHEALTHY
    assert not any("not cleared since" in text for text in texts(health))


def test_a_gpu_that_a_message_no_longer_names_is_clear_while_one_that_it_names_is_not(
    book: HealthBook,
) -> None:
    def tell_of(at: float, *xids: tuple[int, str]) -> tuple[State, State]:
        entries = (
            f"ErrorCode:{xid} GPU_UUID:{uuid} x Recommended Action=NONE;" for xid, uuid in xids
        )
        bad = condition("SysLogsXIDError", "True", "x", "".join(entries))
        tell(book, node(bad), at)
        one, two = (of(book, UnitId("gpu-1", "nvidia.com/gpu", gpu), at) for gpu in ("a", "b"))
        return one.state, two.state

    ill, well = State.UNHEALTHY, State.HEALTHY
    assert tell_of(NOW, (79, "a"), (79, "b")) == (ill, ill)
    assert tell_of(NOW + MINUTE, (63, "b")) == (well, ill)


def test_a_fault_that_is_said_again_is_one_and_reads_as_said(book: HealthBook) -> None:
    for minute, (xid, effect) in enumerate((WORN, ("45", "None"), WORN)):
        health = publish(book, NOW + minute * MINUTE, taint(KEY, xid, effect))
    assert len(health.evidence) == 1
    assert "not cleared" not in texts(health)[0]


def test_an_administrator_who_lowers_a_reservation_is_believed(book: HealthBook) -> None:
    for effect in ("NoExecute", "None"):
        reserved = taint_rule({"device": "gpu-0"}, taint("example.com/reserve", "x", effect))
        book.ledger.report(report_of_taint_rule(reserved, [DEVICE], RULES, NOW), NOW)
    assert of(book, DEVICE, NOW).score == 0.85


def test_a_lighter_fault_for_good_does_not_displace_the_heavier_one(book: HealthBook) -> None:
    def say(weight: float, text: str) -> Health:
        evidence = Evidence(
            subject=DEVICE,
            family=Family.DRIVER,
            kind=EvidenceKind.LATCHED,
            weight=weight,
            source=Source(SourceKind.TAINT, "s"),
            reporter=ReporterId("r"),
            said=text,
            observed_at=NOW,
        )
        book.ledger.report(
            report_of_slice(slice_(), RULES, NOW)._replace(evidence=(evidence,)), NOW
        )
        return of(book, DEVICE, NOW)

    say(0.9, "heavy")
    assert texts(say(0.4, "light")) == ["heavy; not cleared since"]
    assert texts(say(0.9, "heavy too")) == ["heavy too"]


xids = st.sampled_from([*LATCHED[:6], "13", "31", "43", "45", "63", "74", "1000"])


@given(st.lists(st.none() | st.tuples(xids, st.sampled_from(["NoSchedule", "None"])), max_size=30))
@example([("48", "NoSchedule"), ("45", "None"), None, ("45", "None")])
def test_what_is_latched_counts_until_its_taint_is_gone_and_takes_bounded_room(
    words: list[tuple[str, str] | None],
) -> None:
    """And a server that was just started, which knows what is said now, knows no worse of it."""
    running, latched = HealthBook(HealthSettings(), RULES), set[str]()
    for i, word in enumerate(words):
        at = NOW + i
        taints = [taint(KEY, *word)] if word is not None else []
        health = publish(running, at, *taints)
        fresh = publish(HealthBook(HealthSettings(), RULES), at, *taints)
        may_latch = set(GONE if word is not None and word[1] == "None" else LATCHED)
        latched = latched | {word[0]} & may_latch if word is not None else set()
        kinds = {w.evidence.kind for w in health.evidence}
        assert (EvidenceKind.LATCHED in kinds) == bool(latched)
        assert health.state is State.UNHEALTHY or not latched
        assert health.score <= fresh.score
        told = {w.evidence.text for w in health.evidence}
        assert {w.evidence.text for w in fresh.evidence} <= told
        standing = [w for w in health.evidence if w.evidence.kind is not EvidenceKind.DECAYING]
        assert len(standing) <= len({RULES.xid(xid).family for xid in latched}) + 1


entries = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), xids), max_size=4)


@given(st.lists(entries, max_size=12))
def test_each_gpu_of_a_message_stays_latched_for_as_long_as_the_message_names_it(
    messages: list[list[tuple[str, str]]],
) -> None:
    book, latched = HealthBook(HealthSettings(), RULES), set[str]()
    for i, message in enumerate(messages):
        text = "".join(
            f"ErrorCode:{xid} GPU_UUID:{gpu} x Recommended Action=NONE;" for gpu, xid in message
        )
        status = "True" if message else "False"
        tell(book, node(condition("SysLogsXIDError", status, "x", text)), NOW + i)
        latched &= {gpu for gpu, _ in message}
        latched |= {gpu for gpu, xid in message if xid in LATCHED}
        for gpu in ("a", "b", "c"):
            health = of(book, UnitId("gpu-1", "nvidia.com/gpu", gpu), NOW + i)
            assert (EvidenceKind.LATCHED in {w.evidence.kind for w in health.evidence}) == (
                gpu in latched
            )


# -- a remediation that a label tells of

SUCCEEDED = {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}


def xid(code: int, uuid: str = UUID, text: str = "x") -> str:
    return f"ErrorCode:{code} GPU_UUID:{uuid} {text} Recommended Action=COMPONENT_RESET;"


def faulty(
    book: HealthBook, at: float, *entries: str, labels: dict[str, str] | None = None
) -> Health:
    status = "True" if entries else "False"
    said = condition("SysLogsXIDError", status, "x", "".join(entries) or "No Health Failures")
    tell(book, node(said, labels=labels), at)
    return of(book, GPU, at)


def test_what_a_remediation_has_dealt_with_is_latched_no_longer(book: HealthBook) -> None:
    assert faulty(book, NOW, xid(48)).state is State.UNHEALTHY
    dealt_with = faulty(book, NOW + 1, xid(48), labels=SUCCEEDED)
    assert (dealt_with.state, dealt_with.score) == (State.DEGRADED, 0.5)
    assert texts(dealt_with)[0].startswith("remediated since: XID 48: ")
    assert faulty(book, NOW + 2, labels=SUCCEEDED).state is State.HEALTHY


def test_what_a_later_word_had_displaced_a_remediation_deals_with_too(book: HealthBook) -> None:
    faulty(book, NOW, xid(79))
    faulty(book, NOW + 1, xid(63))
    assert faulty(book, NOW + 2, xid(63), labels=SUCCEEDED).state is not State.UNHEALTHY


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [xid(79)]),
        ([xid(48)], [xid(48), xid(79)]),
        ([xid(48)], [xid(48), xid(48, text="and once more")]),
        ([xid(48)], [xid(48), xid(64)]),
        ([xid(64)], [xid(64), xid(48)]),
    ],
)
def test_a_fault_that_came_after_a_remediation_counts_in_full(
    book: HealthBook, before: list[str], after: list[str]
) -> None:
    assert faulty(book, NOW, *before, labels=SUCCEEDED).state is not State.UNHEALTHY
    for minute in (1, 2):
        health = faulty(book, NOW + minute * MINUTE, *after, labels=SUCCEEDED)
        assert (health.state, health.score) == (State.UNHEALTHY, 0.0)


def test_a_fault_that_comes_back_after_it_was_remediated_counts_in_full(book: HealthBook) -> None:
    for i, (entries, state) in enumerate(
        [([xid(48)], State.DEGRADED), ([], State.HEALTHY), ([xid(48)], State.UNHEALTHY)]
    ):
        assert faulty(book, NOW + i, *entries, labels=SUCCEEDED).state is state


def test_a_second_remediation_deals_with_what_came_after_the_first(book: HealthBook) -> None:
    faulty(book, NOW, labels=SUCCEEDED)
    assert faulty(book, NOW + 1, xid(48), labels=SUCCEEDED).state is State.UNHEALTHY
    faulty(book, NOW + 2, xid(48))
    assert faulty(book, NOW + 3, xid(48), labels=SUCCEEDED).state is State.DEGRADED


def test_a_node_that_replaces_a_remediated_one_is_judged_by_what_it_says_first(
    book: HealthBook,
) -> None:
    faulty(book, NOW, labels=SUCCEEDED)
    book.ledger.vanish(ReporterId("Node", "gpu-1"), NOW + 1)
    book.forget({NODE}, NOW + 1)
    assert faulty(book, NOW + 2, xid(48), labels=SUCCEEDED).state is State.DEGRADED
    book.ledger.vanish(ReporterId("Node", "gpu-1"), NOW + 3)
    book.forget({NODE}, NOW + 3)
    assert of(book, GPU, NOW + 3) is SOUND
