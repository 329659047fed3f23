"""What one request leaves for the next: whole replies."""

from extender.filter import HEAD_BYTES, KeptReplies, KeptReply
from fettle.records import Decided, Decision, Verb

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
