"""What counts against devices where no policy is asked, but only how healthy they are: their state,
after what the breaker sets aside. Pure.
"""

from collections.abc import Mapping

import msgspec

from fettle.model import Degraded, Placement, State
from fettle.scheduling.answers import Answers
from fettle.scheduling.judge.acceptance import Acceptance

_REFUSES = {
    State.UNHEALTHY: Placement(min_score=0.0),
    State.DEGRADED: Placement(min_score=0.0, degraded=Degraded.REFUSE),
}
"""A placement that refuses by this state and no milder one, for its breaker."""


def accepted_by_state(answers: Answers) -> Mapping[State, Acceptance] | None:
    """For Unhealthy and Degraded, what is set aside for those that refuse it: nothing is done by
    that. None while devices are not counted yet."""
    breakers = {state: answers.breaker(placement) for state, placement in _REFUSES.items()}
    if not breakers[State.UNHEALTHY].has_counted:
        return None
    return {
        state: msgspec.structs.replace(
            answers.acceptance(breaker.placement), set_aside=breaker.not_acted_on
        )
        for state, breaker in breakers.items()
    }


def devices_counted(answers: Answers, pool: str) -> int | None:
    """How many devices of a driver, or units of a resource, there are; None if they are on too few
    nodes to have a breaker."""
    return answers.breaker(_REFUSES[State.UNHEALTHY]).devices(pool)
