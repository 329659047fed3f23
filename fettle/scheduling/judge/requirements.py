"""What a policy requires of nodes and devices in CEL, looked up for verdicts.

The selector engines evaluate expressions beforehand; this module looks up their outcomes in their
memory. What is not known is allowed.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from math import inf
from typing import NamedTuple

from fettle.api.resource import Device
from fettle.cel import Engines, Outcome, OutcomeKind, Reads, SelectorEngine, rows
from fettle.cluster import NodeView
from fettle.dra import DeviceView
from fettle.model import Requirement

Labels = Mapping[str, str]


class Met(NamedTuple):
    """The requirements that a device or node does not meet, in the policy's words.

    `undecided` are requirements whose outcome is not known, each with the evaluator's reason. Both
    are empty if all are met.
    """

    unmet: tuple[str, ...] = ()
    undecided: tuple[tuple[str, str], ...] = ()


ALL_MET = Met()


def rows_of(nodes: Iterable[NodeView]) -> tuple[list[tuple[str, Device]], list[Labels]]:
    """What `Engines.evaluate` is given of nodes: their devices, and their labels."""
    nodes = tuple(nodes)
    pools = [pool for node in nodes for pool in node.pools]
    devices = [(d.id.driver, d.device) for p in pools for d in (*p.devices, *p.withheld)]
    return devices, [node.labels for node in nodes]


class Requirements:
    """The requirements of one policy; `missed` counts look-ups of what is not evaluated yet."""

    def __init__(
        self, requirements: tuple[Requirement, ...] = (), engines: Engines | None = None
    ) -> None:
        self._requirements = requirements if engines is not None else ()
        self._engines = engines
        self.missed = 0

    def of_device(self, device: DeviceView) -> Met:
        """The requirements that a device does not meet."""
        if self._engines is None or not self._requirements:
            return ALL_MET
        engine = self._engines.devices
        return self._met(engine, lambda e: engine.outcome(e, device.id.driver, device.device))

    def of_node(self, node: NodeView) -> Met:
        """The requirements that a node does not meet, apart from its devices."""
        if self._engines is None or not self._requirements:
            return ALL_MET
        engine, labels = self._engines.nodes, rows.device_of_node(node.labels)
        return self._met(engine, lambda e: engine.outcome(e, "", labels))

    def reads(self) -> list[Reads]:
        """What the expressions read of devices."""
        if self._engines is None:
            return []
        devices = self._engines.devices
        return [devices.reads(r.expression) for r in self._about(devices)]

    def given_up_until(self, since: float) -> float:
        """When the first evaluation that was given up is tried again, if that is after `since`.

        Infinity if there is none.
        """
        if self._engines is None or not self._requirements:
            return inf
        expressions = [requirement.expression for requirement in self._requirements]
        engines = (self._engines.devices, self._engines.nodes)
        return min(engine.given_up_until(expressions, since) for engine in engines)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._engines is not None and bool(self._requirements)

    def labels(self, node: NodeView) -> Hashable:
        """A fingerprint of the node's labels that the expressions read."""
        if self._engines is None or not self._requirements:
            return ()
        nodes = self._engines.nodes
        about = self._about(nodes)
        if not about:
            return ()
        seen = rows.device_of_node(node.labels)
        return tuple(rows.row_fingerprint(nodes.reads(r.expression), "", seen) for r in about)

    def _about(self, engine: SelectorEngine) -> list[Requirement]:
        """The requirements that this engine evaluates, or may, since they are not compiled yet."""
        engines = self._engines
        assert engines is not None
        return [r for r in self._requirements if not engines.known(r) or engines.about(r) is engine]

    def _met(self, engine: SelectorEngine, outcome_of: Callable[[str], Outcome | None]) -> Met:
        assert self._engines is not None
        unmet: list[str] = []
        undecided: list[tuple[str, str]] = []
        for requirement in self._requirements:
            if not self._engines.known(requirement):
                self.missed += 1
                continue
            if self._engines.about(requirement) is not engine:
                continue
            outcome = outcome_of(requirement.expression)
            if outcome is None:
                self.missed += 1
            elif outcome.kind is OutcomeKind.NO_MATCH:
                unmet.append(requirement.description)
            elif outcome.kind is not OutcomeKind.MATCH:
                undecided.append((requirement.description, outcome.reason))
        return Met(tuple(unmet), tuple(undecided))
