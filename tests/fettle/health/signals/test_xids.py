"""The forms in which the driver and monitors write XIDs, and what only looks like one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.health.signals.xids import ANY_FORM, mentions

GPU = "pci:0000:c1:00.0"


def codes(message: str, reason: str = "", form: str = ANY_FORM) -> list[str]:
    return [one.code for one in mentions(form, reason, message)]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus.", [("79", GPU)]),
        ("Xid (0000:C1:00.0): 14, Channel 00000001", [("14", GPU)]),
        ("NVRM: Xid (PCI:0000:c1:00 GPU-I:05): 94, pid=7, Contained", [("94", GPU)]),
        ("NVRM: Xid: 92, High single-bit ECC error rate", [("92", "")]),
        ("detected XID-79 on the instance; detected XID-63", [("79", ""), ("63", "")]),
        ("XID-63 x; XID-79 GPU has fallen off the bus", [("63", ""), ("79", "")]),
        ("Xid 79 GPU 3", [("79", "")]),
        ("Caught XID error, Xid=48", [("48", "")]),
        ('{"xid":79}', [("79", "")]),
        ('{\\"xid\\": \\"79\\"}', [("79", "")]),
        ("XIDs: 48, 63 and 94 on GPU 3", [("48", ""), ("63", ""), ("94", "")]),
        ("Xid errors 13, 79 and 48 detected", [("13", ""), ("79", ""), ("48", "")]),
        ("xid codes [48,63]", [("48", ""), ("63", "")]),
        ("Xid error code: 79", [("79", "")]),
        ("Xid error code 79", [("79", "")]),
        ("xid_79", [("79", "")]),
        ("XID 79 errors on this node", [("79", "")]),
        ("gpu_xid_048", [("48", "")]),
        ("GPU XID 79: fallen off", [("79", "")]),
        ("XID_ERR_79", [("79", "")]),
        ("XIDError119", [("119", "")]),
        ("XidCriticalError 79", [("79", "")]),
        ("XID 31, 79", [("31", ""), ("79", "")]),
        ("XID: 31, 79.", [("31", ""), ("79", "")]),
        ("XID 31 and 79: GPU lost", [("31", ""), ("79", "")]),
        ("XID 31/79", [("31", ""), ("79", "")]),
        ("XID#79", [("79", "")]),
        ("Xids: 13, 79", [("13", ""), ("79", "")]),
        ("GPUXid/XID48_XID63", [("48", ""), ("63", "")]),
        ("Xid error 31, 48, and 79", [("31", ""), ("48", ""), ("79", "")]),
        ("XID 13 and 79 on GPU 3", [("13", ""), ("79", "")]),
        ('{"xid":[13,79]}', [("13", ""), ("79", "")]),
        ("XIDs 31,79.", [("31", ""), ("79", "")]),
    ],
)
def test_every_form_of_an_xid_is_found(message: str, found: list[tuple[str, str]]) -> None:
    assert [(one.code, one.gpu) for one in mentions(ANY_FORM, "", message)] == found


@pytest.mark.parametrize("message", ["Xid/79", "Xid errors: 79"])
def test_a_form_that_docs_call_unread_is_not_read(message: str) -> None:
    assert codes(message) == []


@pytest.mark.parametrize("reason", ["NvidiaXID79Error", "nvidiaxid79error", "GPUXID79", "XID_79"])
def test_an_xid_in_a_reason_is_found(reason: str) -> None:
    assert codes("", reason) == ["79"]


@pytest.mark.parametrize(
    "message",
    [
        "XID 13, 2 times",
        "Xid 13, pid=1234",
        "XID 13 3 occurrences",
        "XID 13 and 2 more",
        "XID 13, 8 GPUs",
        "XID 13, 5 minutes ago",
        "XID 13, 3 in the last hour",
        "XID 13, 11/26/2026",
        "XID 13, 12:30:01",
        "XID 13, 17:00.0",
        "XID 13, 2026-11-26",
        "XID 13, 1.5 s",
        "NVRM: Xid: 13, 0003 00000000 0000502d",
        "NVRM: Xid (PCI:0000:c1:00): 13, 79 of a channel",
    ],
)
def test_a_number_behind_an_xid_that_is_a_count_is_no_xid(message: str) -> None:
    assert codes(message) == ["13"]


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 32 LTSSM Fault Up",
        "SXID 79",
        "sxid=12",
        "XID errors: 48 in 5 minutes",
        "XIDs: 13 in the last hour",
        "XID 13 times",
        "XID 3 of 8",
        "XID errors: 8",
        "XID errors 8",
        "NVRM: Xid (PCI:0001:01",
        "NVRM: Xid (PCI:0001:01:00): ",
        "Xid (0001:0",
        "XID 0",
        "XID 1.5",
        "xid 20034",
        "taxid=79",
        "DCGM detected issues in health check system with error code 48",
        "expected 8 GPUs for this instance type but only 7 were detected",
        "no XID",
    ],
)
def test_what_is_no_xid_is_not_taken_for_one(text: str) -> None:
    assert codes(text) == codes("", text) == []


def test_a_gpu_that_the_message_names_is_not_doubted_by_the_reason() -> None:
    (one,) = mentions(ANY_FORM, "NvidiaXID79Error", "NVRM: Xid (PCI:0000:c1:00): 79, x")
    assert one.gpu == GPU


def test_the_reason_tells_what_was_found_last() -> None:
    message = "XID-163; XID-162"
    assert codes(message, "NvidiaXID163Error") == ["162", "163"]
    assert codes(message, "NvidiaXID162Error") == ["163", "162"]


def test_of_the_same_xid_of_one_gpu_the_last_counts() -> None:
    message = "Xid (PCI:0000:c1:00): 154, to 0x1; Xid (PCI:0000:c1:00): 154, to 0x0"
    (one,) = mentions(ANY_FORM, "", message)
    assert one.said.endswith("to 0x0")


def test_a_form_of_ones_own_finds_all_numbers_of_its_group() -> None:
    assert codes("fault 79, fault 48", "fault 63", r"fault (\d+)") == ["79", "48", "63"]
    own = r"(?P<xid>\d+)@(?P<pci>\S+)"
    (one,) = mentions(own, "", "79@0000:c1:00.0")
    assert (one.code, one.gpu) == ("79", GPU)
    assert codes("79 ²", "", r"fault|(\S+)") == ["79"]


SEPARATORS = st.sampled_from(["; ", "\n", " | ", ";;", " -- "])
NUMBERS = st.integers(1, 999)
FORMS = st.sampled_from(
    [
        "NVRM: Xid (PCI:0000:{0:02x}:00): {1}, pid=7, name=a",
        "detected XID-{1} on the instance",
        "XID {1}",
        "xid={1}",
        "NvidiaXID{1}Error",
    ]
)
MENTIONS = st.builds(lambda form, n: form.format(n % 256, n), FORMS, NUMBERS)


@given(st.text() | MENTIONS, st.text() | MENTIONS, st.sampled_from([ANY_FORM, r"(\d+)", "(x)|y"]))
def test_no_text_is_too_odd_to_be_read(reason: str, message: str, form: str) -> None:
    for one in mentions(form, reason, message):
        assert one.code.isascii()
        assert one.code.isdigit()


@given(st.lists(MENTIONS, max_size=4), SEPARATORS, st.text() | MENTIONS)
@example(["XID 1"], "\n", "%")
def test_further_text_never_hides_an_xid(told: list[str], separator: str, more: str) -> None:
    message = separator.join(told)
    before, after = codes(message), codes(f"{message}{separator}{more}")
    assert set(before) <= set(after)
