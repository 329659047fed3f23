"""What one request leaves for the next: whole replies, and the memory that names were in."""

import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from extender.http.reuse import HEAD_BYTES, TIDY_EVERY, KeptReplies, KeptReply, NameMemory
from fettle.api import extender as wire
from fettle.records import Decided, Decision, Verb
from fettle.scheduling import Narrowed

REPOSITORY = Path(__file__).parents[3]
NOW, LATER = (1, 0), (2, 0)
SAID = Decision(
    id="1", verb=Verb.FILTER, key="default/p", decided=Decided.REFUSED, first=0.0, last=0.0
)


def request(pod: str, size: int = 100) -> bytes:
    return pod.encode().ljust(size)


def test_the_very_same_request_gets_its_reply_until_answers_change() -> None:
    replies = KeptReplies()
    replies.keep(KeptReply(request("a"), NOW, b"reply", 3, SAID))
    kept = replies.get(request("a"), NOW)
    assert kept is not None
    assert (kept.body, kept.refused) == (b"reply", 3)
    assert replies.get(request("a"), LATER) is None
    assert replies.get(request("b"), NOW) is None


def test_a_refusal_is_not_repeated_once_the_pods_patience_is_over() -> None:
    now = 100.0
    replies = KeptReplies(now=lambda: now)
    replies.keep(KeptReply(request("a"), NOW, b"reply", 3, SAID, until=160.0))
    now = 159.9
    assert replies.get(request("a"), NOW) is not None
    now = 160.0
    assert replies.get(request("a"), NOW) is None


def test_a_request_that_only_begins_alike_is_another() -> None:
    replies = KeptReplies()
    begins = request("a", HEAD_BYTES)
    replies.keep(KeptReply(begins + b"n1", NOW, b"one", 0, SAID))
    assert replies.get(begins + b"n2", NOW) is None
    replies.keep(KeptReply(begins + b"n2", NOW, b"two", 0, SAID))
    assert replies.get(begins + b"n1", NOW) is None


def test_replies_not_used_for_longest_go_first_where_there_is_no_room() -> None:
    replies = KeptReplies(max_bytes=4 * 110)
    for pod in "abcd":
        replies.keep(KeptReply(request(pod), NOW, b"0123456789", 0, SAID))
    assert replies.get(request("a"), NOW) is not None
    replies.keep(KeptReply(request("e"), NOW, b"0123456789", 0, SAID))
    left = [pod for pod in "abcde" if replies.get(request(pod), NOW) is not None]
    assert left == ["a", "c", "d", "e"]


def test_a_reply_that_is_replaced_takes_no_room_any_more() -> None:
    replies = KeptReplies(max_bytes=2 * 110)
    replies.keep(KeptReply(request("a"), NOW, b"0123456789", 0, SAID))
    for edition in range(10):
        replies.keep(KeptReply(request("b"), (edition, 0), b"0123456789", 0, SAID))
    assert replies.get(request("a"), NOW) is not None


def test_a_reply_that_is_larger_than_all_the_room_is_not_kept() -> None:
    replies = KeptReplies(max_bytes=100)
    replies.keep(KeptReply(request("a"), NOW, b"0123456789", 0, SAID))
    assert replies.get(request("a"), NOW) is None


# -- memory

NAMES = [f"gpu-h100-{number:05d}.zone-a.internal" for number in range(2000)]
NEAR = 256


def decoded() -> list[str]:
    body = b'{"Pod":{"metadata":{}},"NodeNames":["' + '","'.join(NAMES).encode() + b'"]}'
    names = wire.decode_args(body).node_names
    assert names == NAMES
    return names


def jumps(names: list[str]) -> int:
    """How often the next name lies somewhere else."""
    places = [id(name) for name in names]
    return sum(abs(a - b) > NEAR for a, b in pairwise(places))


def scattered_and_tidied() -> tuple[int, int]:
    """The jumps of names before and after."""
    names = decoded()
    random.Random(7).shuffle(names)
    del names
    before = jumps(decoded())
    memory = NameMemory()
    for _ in range(2 * TIDY_EVERY):
        names = decoded()
        refused = set(random.Random(7).sample(names, 200))
        narrowed = Narrowed(names, [n for n in names if n not in refused])
        del refused
        memory.free(narrowed)
    return before, jumps(decoded())


def test_names_that_were_scattered_come_to_lie_in_a_row_again() -> None:
    # In a process of its own: the memory that other tests freed has holes everywhere.
    program = f"from {__name__} import scattered_and_tidied as found; print(*found())"
    told = subprocess.check_output([sys.executable, "-c", program], cwd=REPOSITORY, timeout=60)
    before, after = map(int, told.split())
    assert before > len(NAMES) / 2
    assert after < len(NAMES) / 4


def test_freed_lists_are_empty_also_where_all_names_passed() -> None:
    names = decoded()
    narrowed = Narrowed(names, names)
    NameMemory().free(narrowed)
    assert narrowed == Narrowed([], [])
