"""Groups of requests that each have to agree on a value: pairs of a GPU and a NIC on one PCIe root.

Each constraint by itself can be met as long as one root has both. How many can be met at once, a
search finds out by trying, which takes exponentially long. Here each value of the attribute offers
so many places as groups would find enough devices with it, and groups that cannot all be given a
place cannot all be met. Sound, not complete; of groups alike whose devices nobody else wants it is
exact. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fettle.dra.allocator.abilities import Abilities, Ability
from fettle.dra.allocator.constraints import value_of
from fettle.dra.allocator.contending import Need, most, served
from fettle.dra.allocator.plans import AllRequestData, RequestData
from fettle.dra.allocator.profiles import Profile
from fettle.dra.allocator.searching import DeviceIndices
from fettle.dra.allocator.taking import Books
from fettle.dra.claims import Claim
from fettle.pacing import pause

PATIENCE = 64
"""So many looks ahead in a row may show nothing; one takes the time of several steps."""


class Member(NamedTuple):
    """A request of a group; `request` is its place in the claim."""

    request: int
    plan: RequestData
    ability: Ability


class Group(NamedTuple):
    """What a matchAttribute binds together and competes with others for devices; `constraint` is
    its place in the claim."""

    claim: int
    constraint: int
    members: Sequence[Member]


Numbers = tuple[tuple[Ability, tuple[int, ...]], ...]
"""Of each ability, how many devices are wanted for each of its requests."""


class GroupDemand(NamedTuple):
    """What a group still wants; `value` is what all its devices have to have, None while it may be
    any."""

    numbers: Numbers
    value: object = None


class DevicesLeft(NamedTuple):
    """Devices of one value: those that serve one request, and those that several may share."""

    alone: int = 0
    shared: int = 0

    def suffice(self, numbers: Sequence[int]) -> bool:
        """For requests of so many devices each."""
        return sum(max(0, number - self.shared) for number in numbers) <= self.alone


class CompetingGroups:
    """All groups that are about one attribute: they compete for its values."""

    def __init__(self, attribute: str, groups: Sequence[Group], books: Books) -> None:
        self.attribute = attribute
        self.groups = groups
        self._books = books
        self._devices: dict[object, dict[Ability, tuple[Sequence[int], int]]] = {}
        """By value and ability, those that serve one request, and how many may be shared."""

    def compare(self) -> bool:
        """To be called first; false where some value compares in ways of its own."""
        shareable = self._books.shareable
        for ability in dict.fromkeys(m.ability for group in self.groups for m in group.members):
            table = ability.by_value(self.attribute)
            if None in table:
                return False
            for value, able in table.items():
                alone = [at for at in able if at not in shareable] if shareable else able
                of_value = self._devices.setdefault(value, {})
                of_value[ability] = alone, len(able) - len(alone)
                pause()
        return True

    def met(self) -> int:
        """How many of the groups can be met at once, at most, if nothing else is taken."""
        wanted = Counter(map(_all_of, self.groups))
        return most(self._needs(wanted, _is_free), ())

    def values_for(self, members: Sequence[Member]) -> int:
        """With how many values there are devices enough for all of these, beside each other."""
        numbers = _numbers(members)
        return sum(_suffice(left, numbers) for _, left in self._left(_is_free))

    def possible(self, call: DeviceIndices) -> bool:
        """Whether all can be met beside what a search holds that makes this call."""
        left = [self._left_of(group, call) for group in self.groups]
        wanted = Counter(each for each in left if each.numbers)
        needs = self._needs(wanted, self._books.is_untouched)
        return served(needs, ())

    def _left_of(self, group: Group, call: DeviceIndices) -> GroupDemand:
        numbers: dict[Ability, tuple[int, ...]] = {}
        for request, plan, ability in group.members:
            place = group.claim, request
            now = call.claim, call.request
            number = plan.count - (call.nth if place == now else 0)
            if place >= now and number > 0:
                numbers[ability] = (*numbers.get(ability, ()), number)
        agreed = self._books.agreed(group.claim, group.constraint)
        return GroupDemand(tuple(numbers.items()), None if agreed is None else value_of(agreed))

    def _needs(self, wanted: Counter[GroupDemand], is_free: Callable[[int], bool]) -> list[Need]:
        """Of groups that want the same, so many places as there are of them."""
        able: dict[GroupDemand, list[int]] = {each: [] for each in wanted}
        by_value: dict[object, list[GroupDemand]] = {}
        for each in wanted:
            by_value.setdefault(each.value, []).append(each)
        places = 0
        for value, left in self._left(is_free):
            here = [
                each
                for each in (*by_value.get(None, ()), *by_value.get(value, ()))
                if _suffice(left, each.numbers)
            ]
            room = _room({each: wanted[each] for each in here}, left)
            for each in here:
                able[each] += range(places, places + room)
            places += room
            pause()
        return [Need(number, able[each]) for each, number in wanted.items()]

    def _left(
        self, is_free: Callable[[int], bool]
    ) -> Iterator[tuple[object, Mapping[Ability, DevicesLeft]]]:
        """By value, the devices that are left for each ability."""
        for value, devices in self._devices.items():
            yield (
                value,
                {
                    ability: DevicesLeft(sum(map(is_free, alone)), shared)
                    for ability, (alone, shared) in devices.items()
                },
            )


def families(
    claims: Sequence[Claim], plans: AllRequestData, able: Abilities, books: Books, profile: Profile
) -> list[CompetingGroups]:
    """The groups of all claims, by attribute."""
    found: list[CompetingGroups] = []
    if profile.features.list_type_attributes:
        return found
    for attribute, groups in _grouped(claims, plans, able).items():
        family = CompetingGroups(attribute, groups, books)
        if family.compare():
            found.append(family)
    return found


class Lookout:
    """Looks ahead from each call of a search, as long as that spares it anything."""

    def __init__(self, found: Sequence[CompetingGroups]) -> None:
        self._families = found
        self._patience = PATIENCE if found else 0

    def possible(self, call: DeviceIndices) -> bool:
        """False where nothing can be found with this call."""
        if self._patience:
            self._patience -= 1
            for family in self._families:
                if not family.possible(call):
                    self._patience = PATIENCE
                    return False
        return True


def _grouped(
    claims: Sequence[Claim], plans: AllRequestData, able: Abilities
) -> Mapping[str, Sequence[Group]]:
    """Requests of one group only, since what two want of a request cannot be added up."""
    grouped: dict[str, list[Group]] = {}
    bound: set[tuple[str, RequestData]] = set()
    for claim, requests in zip(claims, plans, strict=True):
        for place, constraint in enumerate(claim.constraints):
            if constraint.distinct or constraint.attribute is None:
                continue
            members = [
                Member(request, plan, able[plan])
                for request, (plan, *others) in enumerate(requests)
                if not others and constraint.concerns(plan.request.name, plan.name)
                if plan.count and not plan.admin and plan.everything is None
            ]
            names = {(constraint.attribute, member.plan) for member in members}
            if sum(member.plan.count for member in members) > 1 and bound.isdisjoint(names):
                bound |= names
                group = Group(members[0].plan.claim, place, members)
                grouped.setdefault(constraint.attribute, []).append(group)
            pause()
    return grouped


def _all_of(group: Group) -> GroupDemand:
    return GroupDemand(_numbers(group.members))


def _numbers(members: Sequence[Member]) -> Numbers:
    numbers: dict[Ability, tuple[int, ...]] = {}
    for member in members:
        numbers[member.ability] = (*numbers.get(member.ability, ()), member.plan.count)
    return tuple(numbers.items())


def _suffice(left: Mapping[Ability, DevicesLeft], numbers: Numbers) -> bool:
    """Whether devices of one value do."""
    return all(ability in left and left[ability].suffice(each) for ability, each in numbers)


def _room(wanted: Mapping[GroupDemand, int], left: Mapping[Ability, DevicesLeft]) -> int:
    """How many of these groups find devices beside each other, at most, where each could alone:
    as many as the scarcest devices are enough for, and those that want none of them."""
    room = sum(wanted.values())
    least: dict[Ability, int] = {}
    wanting: Counter[Ability] = Counter()
    for each, groups in wanted.items():
        for ability, numbers in each.numbers:
            wanting[ability] += groups
            least[ability] = min(sum(numbers), least.get(ability, sum(numbers)))
    everyone = room
    for ability, groups in wanting.items():
        if not left[ability].shared:
            room = min(room, left[ability].alone // least[ability] + everyone - groups)
    return room


def _is_free(_at: int) -> bool:
    return True
