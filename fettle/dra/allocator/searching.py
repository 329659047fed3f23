"""The search for the first allocation: depth first, in Kubernetes' order, step for step as there.

A port of `allocateOne` of k8s.io/dynamic-resource-allocation/structured (incubating), with an
explicit stack in place of the recursion, so that it may be as deep as claims are large. It reads
views and changes nothing but its own books.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from fettle.api.resource import MAX_RESULTS
from fettle.dra.allocator.outcomes import Aborted, Taken
from fettle.dra.allocator.plans import RequestData
from fettle.dra.allocator.taking import Books, Undo
from fettle.model import reasons
from fettle.pacing import pause


class Came(IntEnum):
    """What a call came to."""

    NONE = 0
    ALL = 1
    TOO_MANY = 2


class DeviceIndices(NamedTuple):
    """Allocate device `nth` of a request, from candidate `start` on, and then all that follows.

    `alternative` is None where one of a list is still to be chosen.
    """

    claim: int
    request: int
    alternative: int | None = None
    nth: int = 0
    start: int = 0


class Search:
    """One search: `begin`, `step` while it is `under_way`, `end`, then read `result`.

    `steps` counts as upstream does.
    `plans` are the alternatives by claim and request.
    """

    def __init__(self, plans: Sequence[Sequence[Sequence[RequestData]]], books: Books) -> None:
        self.plans = plans
        self.books = books
        self.steps = 0
        self.in_vain = 0
        """How many devices were given back, since nothing was found with them."""
        self.alike: Sequence[int] | None = None
        """The class of each candidate, where it is known; of a class, one failure tells of all."""
        self.ahead: Callable[[DeviceIndices], bool] | None = None
        """Whether anything can be found with a call, where that may be asked beforehand."""
        self.result: tuple[Taken, ...] | None = None
        self._waiting: list[_EndOfClaim | _Choice | _Taking] = []
        self._came = Came.NONE

    def begin(self) -> None:
        self._came = self._enter(DeviceIndices(0, 0))

    @property
    def under_way(self) -> bool:
        return bool(self._waiting)

    def step(self) -> None:
        """Take one device or give it back; raises Aborted or Unclear."""
        answer = self._waiting[-1].resume(self._came)
        if isinstance(answer, Came):
            self._waiting.pop()
            self._came = answer
        elif self.ahead is not None and not self.ahead(answer):
            self._came = Came.NONE
        else:
            self._came = self._enter(answer)

    def end(self) -> None:
        """`result` stays None without one; raises Aborted."""
        if self._came is Came.TOO_MANY:
            raise Aborted(reasons.ResultsTooMany(MAX_RESULTS))
        if self._came is Came.ALL:
            self.result = self.books.results()

    def _enter(self, call: DeviceIndices) -> Came:
        """Make a call, and those that only pass on what the next one comes to."""
        while True:
            self.steps += 1
            claim, request, chosen, nth, _ = call
            if claim >= len(self.plans):
                return Came.ALL
            requests = self.plans[claim]
            if request >= len(requests):
                self._waiting.append(_EndOfClaim())
                call = DeviceIndices(claim + 1, 0)
                continue
            alternatives = requests[request]
            if chosen is None and alternatives[0].request.listed:
                self._waiting.append(_Choice(call, len(alternatives)))
                call = DeviceIndices(claim, request, 0)
                continue
            plan = alternatives[chosen or 0]
            if plan.everything is not None and not plan.everything:
                return Came.NONE
            if nth >= plan.count:
                call = DeviceIndices(claim, request + 1)
                continue
            if plan.count - nth > MAX_RESULTS - self.books.number(claim):
                return Came.TOO_MANY
            self._waiting.append(_Taking(call, plan, self))
            return Came.NONE  # as if a device had failed: the next one is the first


class _EndOfClaim:
    """Waits for the claims after this one; if one of them is too large, that is just a failure."""

    def resume(self, came: Came) -> Came:
        return Came.NONE if came is Came.TOO_MANY else came


class _Choice:
    """Tries the alternatives of a list in order.

    Where all of them need too many devices, no other choice before them can help.
    """

    def __init__(self, call: DeviceIndices, size: int) -> None:
        self._call = call
        self._size = size
        self._at = 0
        self._too_many = True

    def resume(self, came: Came) -> Came | DeviceIndices:
        if came is Came.ALL:
            return came
        if came is Came.NONE:
            self._too_many = False
        self._at += 1
        if self._at < self._size:
            return DeviceIndices(self._call.claim, self._call.request, self._at)
        return Came.TOO_MANY if self._too_many else Came.NONE


class _Taking:
    """Takes one device, and the next one whenever what follows comes to nothing.

    What comes to nothing with one device does so with another of its class: whatever could be found
    with the other could be found, the two exchanged, with the first.
    """

    __slots__ = ("_at", "_books", "_call", "_failed", "_plan", "_search", "_undo")

    def __init__(self, call: DeviceIndices, plan: RequestData, search: Search) -> None:
        self._call = call
        self._plan = plan
        self._search = search
        self._books = search.books
        self._at = call.start
        self._undo: Undo | None = None
        self._failed: set[int] = set()

    def resume(self, came: Came) -> Came | DeviceIndices:
        everything = self._plan.everything
        if came is Came.ALL:
            return came
        if self._undo is not None:
            self._search.in_vain += 1
            self._books.give_back(self._plan, self._undo)
            if self._search.alike is not None and self._books.is_untouched(self._undo.at):
                self._failed.add(self._search.alike[self._undo.at])
            self._undo = None
            if came is Came.TOO_MANY or everything is not None:
                return came
        if everything is not None:
            self._undo = self._books.take(self._plan, everything[self._call.nth], must=True)
            return self._next(0) if self._undo is not None else Came.NONE
        return self._look()

    def _look(self) -> Came | DeviceIndices:
        """Take the next device that can be taken."""
        books, plan, alike = self._books, self._plan, self._search.alike
        for at in range(self._at, len(books.candidates)):
            pause()
            if books.ruled_out(plan, at):
                continue
            if alike is not None and alike[at] in self._failed and books.is_untouched(at):
                continue
            if books.usable(plan, at):
                self._undo = books.take(plan, at)
                if self._undo is not None:
                    self._at = at + 1
                    return self._next(self._at)
        self._at = len(books.candidates)
        books.exhaust()
        return Came.NONE

    def _next(self, start: int) -> DeviceIndices:
        claim, request, alternative, nth, _ = self._call
        return DeviceIndices(claim, request, alternative or 0, nth + 1, start)
