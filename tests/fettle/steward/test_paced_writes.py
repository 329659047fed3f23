"""How many writes are made, which are tried after one fails, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator

from structlog.testing import capture_logs

from fettle.model import ClusterError, Denied, Forbidden, Invalid, NotServed, Unreachable
from fettle.steward.paced_writes import PacedWrites, Write


class Api:
    """What was tried, how each write fares, and a clock."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.fails: dict[str, ClusterError] = {}
        self.now = 1000.0
        self.written = 0

    def writes(self, *names: str) -> Iterator[Write]:
        for name in names:

            async def write(name: str = name) -> None:
                self.tried.append(name)
                if name in self.fails:
                    raise self.fails[name]

            yield write

    def paced(self, per_s: float = 100.0) -> PacedWrites:
        return PacedWrites(
            "it fails", "grant it", per_s=per_s, wrote=self.wrote, clock=lambda: self.now
        )

    def wrote(self) -> None:
        self.written += 1


async def test_so_many_a_second_are_written_and_the_rest_in_its_turn() -> None:
    api = Api()
    writes = api.paced(per_s=20.0)
    names = [f"w{i}" for i in range(30)]
    assert not await writes.do(api.writes(*names))
    assert (api.written, writes.pause_s()) == (20, 1 / 20)
    api.now += 0.25
    assert not await writes.do(api.writes(*names[20:]))
    assert api.tried == names[:25]
    api.now += 100.0
    assert await writes.do(api.writes(*names[25:]))
    assert not await writes.do(api.writes(*names))
    assert api.written == 30 + 15
    assert writes.notes() == []


async def test_fewer_than_one_a_second_are_written_one_by_one() -> None:
    api = Api()
    writes = api.paced(per_s=0.1)
    assert not await writes.do(api.writes("a", "b"))
    assert (api.tried, writes.pause_s()) == (["a"], 10)


async def test_what_one_object_is_refused_for_does_not_stop_the_others() -> None:
    api = Api()
    writes = api.paced()
    api.fails["b"] = Invalid("b is malformed")
    assert not await writes.do(api.writes("a", "b", "c"))
    assert api.tried == ["a", "b", "c"]
    assert (api.written, writes.pause_s()) == (2, 1)


async def test_what_an_admission_policy_denies_stops_nothing_else_and_needs_no_right() -> None:
    api = Api()
    writes = api.paced()
    api.fails["a"] = Denied("policy keep denies it")
    assert not await writes.do(api.writes("a", "b"))
    assert (api.tried, writes.notes()) == (["a", "b"], ["it fails: policy keep denies it"])


async def test_without_a_right_or_kind_or_server_the_rest_of_the_group_is_not_tried() -> None:
    for missing in (Forbidden("no"), NotServed("no"), Unreachable("no")):
        api = Api()
        writes = api.paced()
        api.fails["a"] = missing
        assert not await writes.do(api.writes("a", "b"), api.writes("c", "d"))
        assert api.tried == ["a", "c", "d"]


async def test_a_failure_is_said_once_and_tried_again_after_a_pause_until_it_succeeds() -> None:
    api = Api()
    writes = api.paced()
    api.fails = {name: Forbidden(f"cannot write {name}") for name in "ab"}
    with capture_logs() as logs:
        assert not await writes.do(api.writes("a"))
        assert not await writes.do(api.writes("b"))
        assert api.tried == ["a"]
        api.now += 1
        assert not await writes.do(api.writes("b"))
    assert (api.tried, writes.pause_s()) == (["a", "b"], 2)
    assert [(log["event"], log["reason"], log["remedy"]) for log in logs] == [
        ("it fails", "cannot write a", "grant it")
    ]
    assert writes.notes() == ["it fails: cannot write b (grant it)"]
    api.fails.clear()
    api.now += 2
    assert await writes.do(api.writes("b"))
    assert writes.notes() == []
    assert writes.pause_s() == 0


async def test_where_nothing_is_left_to_write_nothing_is_amiss() -> None:
    api = Api()
    writes = api.paced()
    api.fails["a"] = Forbidden("no")
    await writes.do(api.writes("a"))
    assert await writes.do(api.writes())
    assert writes.notes() == []
