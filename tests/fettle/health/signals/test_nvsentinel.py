"""NVSentinel's messages read down to the device."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.health.signals import gpu_names, nvsentinel
from fettle.health.signals.nvsentinel import parse
from fettle.model import UnitId
from tests.fettle.health.signals.objects import THERMAL, XID


def test_an_entry_names_its_device_code_and_action() -> None:
    message = parse(THERMAL)
    (entry,) = message.entries
    assert not message.cut_off
    assert entry.gpus == (
        ("GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f", "pci:0000:c4:00.0", "index:4"),
    )
    assert entry.codes == ("DCGM_FR_CLOCKS_EVENT_THERMAL",)
    assert entry.action == "CONTACT_SUPPORT"
    assert entry.text == "Clocks are throttled by temperature: check cooling; lower load"


def test_a_semicolon_or_an_address_in_the_text_does_not_confuse_entries() -> None:
    message = parse(THERMAL + XID)
    assert [e.codes for e in message.entries] == [("DCGM_FR_CLOCKS_EVENT_THERMAL",), ("119",)]
    assert message.entries[1].gpus == (
        ("GPU-22222222-2222-2222-2222-222222222222", "pci:0002:00:00.0"),
    )


def test_all_names_of_a_gpu_are_kept_the_best_first() -> None:
    def gpus(text: str) -> tuple[tuple[str, ...], ...]:
        return parse(text + " x Recommended Action=NONE;").entries[0].gpus

    assert gpus("GPU:4 PCI:0000:C4:00.0 GPU_UUID:GPU-1") == (
        ("GPU-1", "pci:0000:c4:00.0", "index:4"),
    )
    assert gpus("GPU:4 PCI:00000000:C4:00.0") == (("pci:0000:c4:00.0", "index:4"),)
    assert gpus("PCI:0000:c4:00") == (("pci:0000:c4:00.0",),)  # as the kernel's log writes it
    assert gpus("GPU:4 GPU:5") == (("index:4",), ("index:5",))
    assert gpus("GPU:4 GPU_UUID:a GPU:5 GPU_UUID:b") == (("a", "index:4"), ("b", "index:5"))
    assert gpus("GPU:4 GPU_UUID:a GPU_UUID:b") == (("a",), ("b",))  # whose index is it?
    assert gpus("NIC:mlx5_0") == ()


def sxid(link: int, gpu: int, switch: str = "0000:05:00.0") -> str:
    """As NVSentinel's handler of SXIDs writes it: the switch and its link, then the GPU."""
    return (
        f"ErrorCode:20034 NVSWITCH:0 PCI:{switch} NVLINK:{link} GPU:{gpu} LTSSM Fault Up "
        "Recommended Action=CONTACT_SUPPORT;"
    )


def test_the_address_of_a_switch_is_not_taken_for_the_gpus() -> None:
    (entry,) = parse(sxid(61, 3)).entries
    assert entry.gpus == (("index:3",),)
    assert entry.text.split() == ["NVSWITCH:0", "NVLINK:61", "LTSSM", "Fault", "Up"]


def test_gpus_that_share_a_switch_are_not_one() -> None:
    memory = (
        "ErrorCode:D GPU:5 PCI:0000:5a:00.0 GPU_UUID:GPU-5 x Recommended Action=COMPONENT_RESET;"
    )
    message = parse(sxid(61, 3) + sxid(17, 5) + memory)
    known = nvsentinel.names(message.entries)
    three, five, also = (nvsentinel.unit_ids("n", e, known) for e in message.entries)
    assert three == (UnitId("n", "nvidia.com/gpu", "index:3"),)
    assert (
        five == also == (UnitId("n", "nvidia.com/gpu", "GPU-5", ("pci:0000:5a:00.0", "index:5")),)
    )


def test_a_switch_that_is_named_alone_is_no_gpu() -> None:
    (entry,) = parse("ErrorCode:X NVSWITCH:0 PCI:0000:05:00.0 x Recommended Action=NONE;").entries
    assert entry.gpus == ()


def test_a_gpu_that_is_named_by_its_uuid_has_no_such_index() -> None:
    """As NVSentinel's handler of XIDs writes it."""
    text = "ErrorCode:79 PCI:0000:4a:00 GPU:GPU-4-a off the bus Recommended Action=RESTART_BM;"
    (entry,) = parse(text).entries
    assert entry.gpus == (("GPU-4-a", "pci:0000:4a:00.0"),)


entities = st.lists(
    st.one_of(
        st.tuples(st.just("GPU"), st.integers(0, 7).map(str)),
        st.tuples(st.just("GPU"), st.integers(0, 7).map("GPU-{}".format)),
        st.tuples(st.just("GPU_UUID"), st.integers(0, 7).map("GPU-{}".format)),
        st.tuples(st.just("PCI"), st.integers(0, 7).map("0000:0{}:00.0".format)),
        st.tuples(st.just("NVLINK"), st.integers(0, 17).map(str)),
    ),
    max_size=5,
)


@given(entities, st.integers(0, 7), entities)
def test_a_switch_in_any_message_adds_no_gpu(
    before: list[tuple[str, str]], switch: int, after: list[tuple[str, str]]
) -> None:
    def gpus(*named: tuple[str, str]) -> tuple[tuple[str, ...], ...]:
        text = "".join(f"{type_}:{value} " for type_, value in named)
        return parse(f"ErrorCode:1 {text}x Recommended Action=NONE;").entries[0].gpus

    own = (("NVSWITCH", "0"), ("PCI", f"0000:f{switch}:00.0"), ("NVLINK", "1"))
    others = [one for one in after if one[0] != "PCI"]
    assert gpus(*before, *own, *others) == gpus(*before, *others)


def test_lesser_names_are_resolved_by_entries_that_give_more() -> None:
    message = parse(
        "ErrorCode:X GPU:4 hot Recommended Action=NONE;"
        + THERMAL
        + "ErrorCode:Y PCI:0000:c4:00 x Recommended Action=NONE;"
    )
    known = nvsentinel.names(message.entries)
    uuid = "GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f"
    unit = UnitId("n", "nvidia.com/gpu", uuid, ("pci:0000:c4:00.0", "index:4"))
    assert {u for e in message.entries for u in nvsentinel.unit_ids("n", e, known)} == {unit}


def test_two_uuids_are_two_gpus_whatever_else_they_share() -> None:
    message = parse(
        "GPU:0 GPU_UUID:a x Recommended Action=NONE;GPU:0 GPU_UUID:b x Recommended Action=NONE;"
    )
    known = nvsentinel.names(message.entries)
    units = [u for e in message.entries for u in nvsentinel.unit_ids("n", e, known)]
    assert [u.unit for u in units] == ["a", "b"]


@pytest.mark.parametrize(
    "claims",
    [
        ("GPU:0 GPU_UUID:a", "GPU:0 GPU_UUID:b"),
        ("GPU:0 GPU_UUID:b", "GPU:0 PCI:0000:01:00.0", "PCI:0000:01:00.0 GPU_UUID:a"),
    ],
)
def test_an_index_that_two_uuids_claim_is_that_of_neither(claims: tuple[str, ...]) -> None:
    for order in permutations((*claims, "GPU:0")):
        message = parse("".join(f"{each} x Recommended Action=NONE;" for each in order))
        known = nvsentinel.names(message.entries)
        alone = message.entries[order.index("GPU:0")]
        assert nvsentinel.unit_ids("n", alone, known) == (
            UnitId("n", nvsentinel.RESOURCE, "index:0"),
        )
        assert "index:0" not in {*known["a"], *known["b"]}


def test_an_index_that_two_uuids_claimed_is_that_of_the_one_that_a_better_source_names() -> None:
    disputed = [("a", "pci:1", "index:0"), ("b", "pci:2", "index:0")]
    known = gpu_names.joined([disputed, [("b", "index:0")]])
    assert known["index:0"] == ("b", "pci:2", "index:0")
    assert known["a"] == ("a", "pci:1")
    again = gpu_names.joined([[("a", "pci:1", "index:0")], [("a", "index:1"), ("b", "index:1")]])
    assert again["index:0"] == ("a", "pci:1", "index:0")
    assert "index:1" not in again
    worse = gpu_names.joined([[("a", "pci:1", "index:0")], disputed])
    assert "index:0" not in worse
    assert worse["pci:1"] == ("a", "pci:1")


def test_a_message_cut_off_gives_what_it_still_says() -> None:
    whole = (THERMAL * 8)[:1024]
    message = parse(whole)
    assert message.cut_off
    assert message.entries[0].gpus[0][0] == "GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f"


def test_an_id_that_is_cut_off_is_not_taken_for_a_device() -> None:
    message = parse(
        "ErrorCode:1 GPU_UUID:GPU-1 x Recommended Action=NONE;ErrorCode:2 GPU_UUID:GPU-22"
    )
    assert message.cut_off
    assert [e.gpus for e in message.entries] == [(("GPU-1",),), ()]


def compacted(entry: str) -> str:
    """As NVSentinel shortens an entry where all together are too long."""
    before, _, action = entry.rpartition(" Recommended Action=")
    return f"{before[:72]}... Recommended Action={action}"


def test_a_name_that_was_shortened_is_not_taken_for_a_device() -> None:
    shortened = compacted(THERMAL)
    assert "GPU_UUID:G..." in shortened
    (entry,) = parse(shortened).entries
    assert entry.gpus == (("pci:0000:c4:00.0", "index:4"),)
    assert entry.action == "CONTACT_SUPPORT"
    assert not parse(shortened).cut_off


def test_an_entry_that_stays_cut_is_not_joined_with_the_next() -> None:
    message = parse(
        "ErrorCode:1 GPU:1 PCI:0000:01:00.0 x Recommended Action=NONE;"
        "ErrorCode:2 GPU:2 PCI:0000:02;"
        "ErrorCode:3 GPU:3 PCI:0000:03:00.0 x Recommended Action=NONE;"
    )
    assert message.cut_off
    assert [(e.codes, e.gpus) for e in message.entries] == [
        (("1",), (("pci:0000:01:00.0", "index:1"),)),
        (("2",), (("index:2",),)),
        (("3",), (("pci:0000:03:00.0", "index:3"),)),
    ]


def test_a_message_that_says_that_it_was_cut_is_cut_off() -> None:
    whole = THERMAL + "ErrorCode:2 GPU_UUID:GPU-22;..."
    assert parse(whole).cut_off
    assert [e.gpus for e in parse(whole).entries][1:] == [()]
    assert parse(THERMAL + "...").cut_off
    assert len(parse(THERMAL + "...").entries) == 1


def test_all_is_well_has_no_entries() -> None:
    assert parse("No Health Failures").entries == ()
    assert parse("").entries == ()


@given(st.text(alphabet=st.sampled_from("ErrorCode:GPU_ID PC;=1.Recommended Action=NONE;\n")))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for entry in parse(text).entries:
        assert all(name for gpu in entry.gpus for name in gpu)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=6), st.integers(0, 1500))
def test_cutting_never_invents_a_device(gpus: list[int], length: int) -> None:
    message = "".join(
        f"ErrorCode:79 GPU_UUID:GPU-{g:08d} fell off Recommended Action=RESTART_BM;" for g in gpus
    )
    named = {g[0] for e in parse(message[:length]).entries for g in e.gpus}
    assert named <= {f"GPU-{g:08d}" for g in gpus}
