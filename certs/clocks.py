"""Which clock certificates go by. Others check them, so it is the API server's, not this machine's.
But whoever replaces an authority that all share must be sure of the time: both clocks must agree.
Beside the flow *watch → inventory → health → verdict → answer*.
"""

from collections.abc import Callable
from typing import NamedTuple

from certs.issuing import CLOCK_SKEW_S, DAY_S

_HOUR_S = 3600.0


class Clocks(NamedTuple):
    """This machine's clock and the API server's, in Unix seconds.

    `server` is None before its first answer, and where a proxy takes the `Date` out of answers.
    """

    own: Callable[[], float]
    server: Callable[[], float | None]

    def now_s(self) -> float:
        """The API server's; without it, this machine's."""
        server_s = self.server()
        return self.own() if server_s is None else server_s

    def disagreement(self) -> str:
        """Such as "this machine's clock is 2 days ahead of the API server's"; "" if they agree."""
        if (server_s := self.server()) is None:
            return ""
        ahead_s = self.own() - server_s
        if abs(ahead_s) <= CLOCK_SKEW_S:
            return ""
        side = "ahead of" if ahead_s > 0 else "behind"
        return f"this machine's clock is {_in_words(abs(ahead_s))} {side} the API server's"


def _in_words(seconds: float) -> str:
    unit_s, unit = (DAY_S, "day") if seconds >= 2 * DAY_S else (_HOUR_S, "hour")
    number = round(seconds / unit_s)
    return f"{number} {unit}{'' if number == 1 else 's'}"
