"""What pods demand at this moment: by their manifest, by their gang, by how long they have waited,
and by who else is in flight. Stands between view and verdict.
"""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from fettle.api import core
from fettle.cluster import Publisher, View
from fettle.config import Settings
from fettle.dra import Binding, Profile
from fettle.model import Placement, Policies, State, reasons
from fettle.scheduling.breaker import Breaker
from fettle.scheduling.demand import Demand, DemandCache, WaitStage, demand_of, resolve_policy
from fettle.scheduling.gangs import Gangs
from fettle.scheduling.in_flight import InFlight
from fettle.scheduling.waits import PodWaits


class PodDemands:
    """`profile` is that of the allocator now, `breaker_of` the breaker of a placement in the newest
    view. `clock` is in seconds, `now` in Unix seconds."""

    def __init__(
        self,
        publisher: Publisher,
        settings: Settings,
        policies: Policies,
        profile: Callable[[], Profile],
        breaker_of: Callable[[Placement], Breaker],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._binding_timeout_s = settings.scheduler.binding_timeout_seconds
        self._policies = policies
        self._profile = profile
        self._breaker_of = breaker_of
        self._clock = clock
        self._now = now
        self._cache = DemandCache(lambda pod: self._by_manifest(self._publisher.view, pod))
        self.gangs = Gangs()
        """Which pods run together; it follows the views by itself."""
        self.waits = PodWaits(now, self.gangs, settings.breaker)
        """How long pods have waited."""
        self._in_flight = InFlight()

    def clear(self) -> None:
        """Forget what was made by another profile."""
        self._cache.clear()

    def of(self, pod: core.Pod) -> Demand | None:
        """The pod's demand in the newest view; None if it needs no devices."""
        return self._of_this_pod(self._cache.of(pod, self._publisher.view), pod)

    def in_view(self, view: View, pod: core.Pod) -> Demand | None:
        """The pod's demand in a view that need not be the newest one."""
        return self._of_this_pod(self._by_manifest(view, pod), pod)

    def with_in_flight(self, pod: core.Pod) -> Demand | None:
        """The pod's demand with the number of pods with the same needs in flight."""
        demand = self.of(pod)
        if demand is None or not demand.allocates:
            return demand
        in_flight = self._in_flight.count(demand, pod, self._publisher.view, self._clock())
        return msgspec.structs.replace(demand, in_flight=in_flight) if in_flight else demand

    def _by_manifest(self, view: View, pod: core.Pod) -> Demand | None:
        features = self._profile().features
        binding = Binding(self._now(), self._binding_timeout_s, features.device_binding_and_status)
        return demand_of(pod, view, self._policies, binding, backed=features.extended_resource)

    def _of_this_pod(self, demand: Demand | None, pod: core.Pod) -> Demand | None:
        """By its gang, and by its wait."""
        if demand is None:
            return None
        placement = demand.policy.placement
        if self.gangs.is_member(pod):
            demand = _in_gang(demand, self._others_are_sound(pod, placement))
        if self.waits.is_over(pod, placement):
            demand = _with_patience_over(demand)
        placement = demand.policy.placement
        waited = self.waits.stage(pod, placement, self._breaker_of(placement))
        return demand if waited is WaitStage.NOT_YET else _having_waited(demand, waited)

    def _others_are_sound(self, pod: core.Pod, placement: Placement) -> bool:
        """Whether no other member of its gang is on a Degraded device, where that matters."""
        if placement.gang_degraded is None:
            return False
        slowest = self.gangs.slowest(pod, self._publisher.view)
        return slowest is None or slowest.health.state not in (State.DEGRADED, State.UNHEALTHY)

    # What happens to pods

    def note_attempt(self, pod: core.Pod) -> None:
        """Note that the scheduler begins to place the pod."""
        self._in_flight.note_attempt(pod)
        self.gangs.note_attempt(pod)

    def note_nodes_given(self, demand: Demand, pod: core.Pod) -> None:
        """Note that filter gave the pod suitable nodes, so it may be placed any moment."""
        now = self._clock()
        self._in_flight.note_nodes_given(demand, pod, now)
        self.gangs.note_nodes_given(pod, now)

    def unplaced(self, pod: core.Pod) -> int:
        """How many members of the pod's gang are still to be placed; 0 if it runs alone."""
        return self.gangs.unplaced(pod, self._clock())

    # How long they wait

    def patience(self, pod: core.Pod) -> reasons.PatienceLasts | reasons.PatienceOver | None:
        """Until when the pod waits for what its policy accepts; None if without end, if it need not
        wait, or if it has a node."""
        return self.waits.patience(pod, self._placement(pod))

    def refused_until(self, demand: Demand, pod: core.Pod) -> float:
        """Until when the same view refuses the pod the same nodes, in Unix seconds: while its
        policy is patient, or has to be for a rule that is set aside."""
        breaker = self._breaker_of(demand.policy.placement)
        return self.waits.refused_until(pod, demand, breaker)

    def last_choices_at(self, pod: core.Pod) -> tuple[float, ...]:
        """When rules that are set aside refuse the pod no more, in Unix seconds."""
        placement = self._placement(pod)
        return self.waits.last_choices_at(pod, placement, self._breaker_of(placement))

    def _placement(self, pod: core.Pod) -> Placement:
        return resolve_policy(pod, self._publisher.view, self._policies).policy.placement


@lru_cache(maxsize=1024)
def _with_patience_over(demand: Demand) -> Demand:
    return msgspec.structs.replace(demand, patience_over=True)


@lru_cache(maxsize=1024)
def _having_waited(demand: Demand, waited: WaitStage) -> Demand:
    return msgspec.structs.replace(demand, waited=waited)


@lru_cache(maxsize=1024)
def _in_gang(demand: Demand, others_sound: bool) -> Demand:
    placement = demand.policy.placement.in_gang(others_sound=others_sound)
    policy = msgspec.structs.replace(demand.policy, placement=placement)
    return msgspec.structs.replace(demand, policy=policy)
