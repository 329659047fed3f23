"""Devices that a node should have and has not, as plain data for people. Pure."""

from typing import Any

from fettle.cluster import NodeView, Shortage


def plain_missing(node: NodeView) -> list[dict[str, Any]]:
    """What a node has fewer of than expected, and who expects it. From `lostAt` on it is lost."""
    return [
        {
            "name": one.name,
            "expected": one.expected,
            "found": one.found,
            "source": one.source,
            "since": one.since,
            "lostAt": one.lost_at,
            "text": missing_in_words(one),
        }
        for one in node.missing
    ]


def missing_in_words(one: Shortage) -> str:
    return f"{one.found} of {one.expected} {one.name}, expected by {one.source}"
