"""The options of `fettle serve`, and of `fettle ui`; and the token of the browse listener of a
Fettle without a cluster: the user's own in FETTLE_TOKEN, else a random one, which successors have
too."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fettle.config import Settings
    from fettle.model import Policies

_GIVEN, _RANDOM = "FETTLE_TOKEN", "FETTLE_RANDOM_TOKEN"


class OwnPage(NamedTuple):
    """The page for one person on their own machine, with their own rights in a cluster: whom to act
    as there, by which settings, of which namespace pods are shown ("": of all). `on_open` is given
    the URL for the person, and the one for the browser."""

    settings: "Settings"
    policies: "Policies"
    on_open: Callable[[str, str], None]
    context: str = ""
    acts_as: str = ""
    groups: tuple[str, ...] = ()
    namespace: str = ""


class ServeOptions(NamedTuple):
    """The options of the command line."""

    roles: frozenset[str]
    kubeconfig: Path | None
    snapshot: Path | None
    settings: Path | None
    extender_listen: str
    webhook_listen: str
    browse_listen: tuple[str, ...]
    log_level: str
    records: Path | None = None
    own: OwnPage | None = None

    def arguments(self) -> list[str]:
        """The command line that gives these options."""
        paths = {
            "kubeconfig": self.kubeconfig,
            "snapshot": self.snapshot,
            "settings": self.settings,
            "records": self.records,
        }
        given = [f"--{name}={path}" for name, path in paths.items() if path is not None]
        return [
            *("serve", *sorted(self.roles), *given),
            f"--extender-listen={self.extender_listen}",
            f"--webhook-listen={self.webhook_listen}",
            *(f"--browse-listen={address}" for address in self.browse_listen),
            f"--log-level={self.log_level}",
        ]


class BrowseToken(NamedTuple):
    text: str
    is_random: bool


def browse_token() -> BrowseToken:
    """Kept in the environment, where the processes that this one starts find it."""
    if given := os.environ.get(_GIVEN, "").strip():
        return BrowseToken(given, is_random=False)
    return BrowseToken(os.environ.setdefault(_RANDOM, secrets.token_urlsafe(24)), is_random=True)
