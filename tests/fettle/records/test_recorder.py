"""Decisions are written in batches, and come back after a restart."""

from pathlib import Path

from fettle.model import BUILT_IN, Mode
from fettle.records import Act, Decided, Verb
from fettle.scheduling import Demand
from tests.fettle import building as b
from tests.fettle.records.building import decision, recorder


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    before = recorder(tmp_path)
    said = before.log.note(decision(reasons={"NodeHeld": 1}))
    await before.write()
    before.again(said)
    await before.close()
    after = recorder(tmp_path)
    (found,) = after.log
    assert (found.id, found.count) == (said.id, 2)
    after.log.note(decision(reasons={"NodeHeld": 1}, at=2000.0))
    assert (len(after.log), found.count) == (1, 3)


async def test_what_could_not_be_written_is_written_once_it_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    one = recorder(folder)
    one.log.note(decision())
    await one.write()
    assert "cannot be written" in " ".join(one.notes())
    folder.mkdir()
    await one.write()
    assert "cannot be written" not in " ".join(one.notes())
    assert len(recorder(folder).log) == 1


async def test_the_file_stays_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    one = recorder(tmp_path, max_bytes=5000, most=10)
    for i in range(200):
        one.log.note(decision(f"p{i}", at=1000.0 + i))
        await one.write()
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 10_000
    keys = [each.key for each in recorder(tmp_path, most=10).log]
    assert keys == [f"default/p{i}" for i in range(190, 200)]


async def test_what_another_process_wrote_meanwhile_is_not_lost_as_the_file_is_written_anew(
    tmp_path: Path,
) -> None:
    old = recorder(tmp_path, max_bytes=3000)
    new = recorder(tmp_path, max_bytes=3000)
    old.log.note(decision("last-words", at=9e12))
    await old.write()
    for i in range(20):
        new.log.note(decision(f"p{i}", at=9e12))
        await new.write()
    assert "default/last-words" in [each.key for each in recorder(tmp_path).log]


async def test_notes_say_if_the_records_do_not_reach_back_so_far() -> None:
    one = recorder(None)
    assert any("there are none from before" in note for note in one.notes(since=1.0))


async def test_a_review_is_recorded_under_the_kind_and_name_of_its_object() -> None:
    one = recorder(None)
    for _ in range(2):
        one.reviewed(
            Verb.VALIDATE,
            "ResourceClaim",
            "team/gpus",
            policy="training",
            mode=Mode.OBSERVE,
            decided=Decided.DENIED,
            rules=["FTL010"],
            why="too many",
        )
    (found,) = one.select(0.0, pod="team/gpus")
    assert (found.kind, found.count, found.reasons) == ("ResourceClaim", 2, {"FTL010": 1})


async def test_what_the_steward_writes_is_a_decision_of_its_own_about_the_pod() -> None:
    one = recorder(None)
    act = Act("Evict", "XID 79", kind="Pod", key="team/p", uid="u", policy="training")
    one.acted(act, written=False)
    one.acted(act, written=False)
    one.acted(act, written=True)
    wrote, would = one.select(0.0, pod="team/p")
    assert (wrote.decided, wrote.count, wrote.why) == (Decided.WROTE, 1, "XID 79")
    assert (would.decided, would.count, would.reasons) == (Decided.WOULD_WRITE, 2, {"Evict": 1})
    assert one.of_pod("u") is None  # it says nothing of where the pod goes


async def test_a_preemption_with_many_nodes_is_recorded_without_a_search_for_each() -> None:
    class Unsearchable(list[str]):
        def __contains__(self, _: object) -> bool:
            raise AssertionError("a search for each node takes the square of their number")

    one = recorder(None)
    one.preempted(
        b.pod(b.gpu_pod()), Demand(BUILT_IN["training"]), ["n1", "n2"], Unsearchable(["n1"]), {}
    )
    (found,) = one.select(0.0)
    assert (found.nodes, found.refused) == (2, 1)
