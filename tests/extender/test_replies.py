"""Replies that are kept for the request that comes again."""

from extender.replies import HEAD_BYTES, Replies

NOW, LATER = (1, 0), (2, 0)


def request(pod: str, size: int = 100) -> bytes:
    return pod.encode().ljust(size)


def test_the_very_same_request_gets_its_reply_until_answers_change() -> None:
    replies = Replies()
    replies.put("filter", request("a"), NOW, b"reply", 3)
    kept = replies.get("filter", request("a"), NOW)
    assert kept is not None
    assert (kept.body, kept.refused) == (b"reply", 3)
    assert replies.get("filter", request("a"), LATER) is None
    assert replies.get("prioritize", request("a"), NOW) is None
    assert replies.get("filter", request("b"), NOW) is None


def test_a_request_that_only_begins_alike_is_another() -> None:
    replies = Replies()
    begins = request("a", HEAD_BYTES)
    replies.put("filter", begins + b"n1", NOW, b"one", 0)
    assert replies.get("filter", begins + b"n2", NOW) is None
    replies.put("filter", begins + b"n2", NOW, b"two", 0)
    assert replies.get("filter", begins + b"n1", NOW) is None


def test_what_was_not_asked_again_for_longest_goes_where_there_is_no_room() -> None:
    replies = Replies(max_bytes=4 * 110)
    for pod in "abcd":
        replies.put("filter", request(pod), NOW, b"0123456789", 0)
    assert replies.get("filter", request("a"), NOW) is not None
    replies.put("filter", request("e"), NOW, b"0123456789", 0)
    left = [pod for pod in "abcde" if replies.get("filter", request(pod), NOW) is not None]
    assert left == ["a", "c", "d", "e"]


def test_a_reply_that_is_replaced_takes_no_room_any_more() -> None:
    replies = Replies(max_bytes=2 * 110)
    replies.put("filter", request("a"), NOW, b"0123456789", 0)
    for edition in range(10):
        replies.put("filter", request("b"), (edition, 0), b"0123456789", 0)
    assert replies.get("filter", request("a"), NOW) is not None
