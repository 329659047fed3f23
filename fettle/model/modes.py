"""Modes: how far Fettle may go. The most specific one counts: a namespace's label, then the
policy's `mode`, then the setting `mode`. Whatever the mode, everything is judged and recorded.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

NO_SETTINGS = "no settings are given"
"""Who says that the mode is `observe` where a command judges without a Fettle's settings."""
MODE_LABEL = "fettle.dev/mode"
"""A label on a namespace: the mode for its pods and other objects."""


class Mode(StrEnum):
    """- `observe`: no placement and no object is changed, as if Fettle were not there.
    - `steer`: nodes are ranked and objects injected into, but nothing is refused or denied.
    - `enforce`: everything.
    """

    OBSERVE = "observe"
    STEER = "steer"
    ENFORCE = "enforce"


class ModeOf(NamedTuple):
    """A mode, and who set it, in words."""

    mode: Mode
    origin: str


def labelled_mode(labels: Mapping[str, str] | None) -> Mode | None:
    """The mode that a namespace's labels set; None if they set none that exists."""
    text = (labels or {}).get(MODE_LABEL)
    return Mode(text) if text in _KNOWN else None


def wrong_label(labels: Mapping[str, str] | None) -> str:
    """What is wrong with a namespace's label, as a sentence; "" if nothing is."""
    text = (labels or {}).get(MODE_LABEL)
    if text is None or text in _KNOWN:
        return ""
    return f"namespace label {MODE_LABEL}: {text!r} is not one of {', '.join(Mode)}; ignored"


_KNOWN = frozenset(map(str, Mode))
