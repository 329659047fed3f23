"""The token of the browse listener of a Fettle without a cluster: the user's own in FETTLE_TOKEN,
else a random one, which successors have too."""

import os
import secrets
from typing import NamedTuple

_GIVEN, _RANDOM = "FETTLE_TOKEN", "FETTLE_RANDOM_TOKEN"


class BrowseToken(NamedTuple):
    text: str
    is_random: bool


def browse_token() -> BrowseToken:
    """Kept in the environment, where the processes that this one starts find it."""
    if given := os.environ.get(_GIVEN, "").strip():
        return BrowseToken(given, is_random=False)
    return BrowseToken(os.environ.setdefault(_RANDOM, secrets.token_urlsafe(24)), is_random=True)
