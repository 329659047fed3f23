"""What a policy requires of nodes and devices in CEL, looked up for verdicts.

The selector engine evaluates expressions beforehand; this module looks up their outcomes in its
memory. An expression is about devices if it compiles with the variable `device`, and about nodes if
it compiles with `node`. One that compiles with neither is ignored. What is not known is allowed.
"""

from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import NamedTuple

from fettle.cel import Outcome, OutcomeKind, Reads, SelectorEngine, rows
from fettle.cluster import NodeView
from fettle.dra import DeviceView
from fettle.logs import Logger
from fettle.model import Policy, Requirement

_LOG = Logger(__name__)


class Met(NamedTuple):
    """The requirements that a device or node does not meet, in the policy's words.

    `undecided` are requirements whose outcome is not known, each with the evaluator's reason. Both
    are empty if all are met.
    """

    unmet: tuple[str, ...] = ()
    undecided: tuple[tuple[str, str], ...] = ()


ALL_MET = Met()


class Engines:
    """The selector engines for expressions about devices and about nodes; both share a worker."""

    def __init__(self, devices: SelectorEngine) -> None:
        self.devices = devices
        self.nodes = devices.of_nodes()
        self._warned: frozenset[tuple[str, str]] = frozenset()

    async def evaluate(
        self, requirements: Iterable[Requirement], nodes: Iterable[NodeView] = ()
    ) -> bool:
        """Evaluate requirements on these nodes and their devices; without nodes, only compile them.

        True if everything is evaluated that can be; see `SelectorEngine.evaluate`.
        """
        expressions = {requirement.expression for requirement in requirements}
        if not expressions:
            return True
        nodes = tuple(nodes)
        pools = [pool for node in nodes for pool in node.pools]
        devices = [(d.id.driver, d.device) for p in pools for d in (*p.devices, *p.withheld)]
        done = await self.devices.evaluate(expressions, devices)
        about_nodes = [e for e in expressions if self.devices.refusal(e) != ""]
        if about_nodes:
            labels = [("", rows.device_of_node(node.labels)) for node in nodes]
            done = await self.nodes.evaluate(about_nodes, labels) and done
        return done

    def about(self, requirement: Requirement) -> SelectorEngine | None:
        """The engine for its variable; None if it compiles with neither, or is not compiled yet."""
        for engine in (self.devices, self.nodes):
            if engine.refusal(requirement.expression) == "":
                return engine
        return None

    def known(self, requirement: Requirement) -> bool:
        """Whether it is known if a requirement is about devices, about nodes, or neither."""
        expression = requirement.expression
        if self.devices.refusal(expression) == "":
            return True
        return None not in (self.devices.refusal(expression), self.nodes.refusal(expression))

    def refusal(self, requirement: Requirement) -> str:
        """Why a requirement is ignored; "" if it is not, or if that is not known yet."""
        if not self.known(requirement) or self.about(requirement) is not None:
            return ""
        about_node = "node." in requirement.expression
        engine = self.nodes if about_node and "device." not in requirement.expression else None
        return (engine or self.devices).refusal(requirement.expression) or ""

    def ignored(self, policy: Policy) -> list[str]:
        """A sentence for each requirement that is known not to compile."""
        return [
            f"placement.requires[{at}] is ignored: {why}"
            for at, requirement in enumerate(policy.placement.requires)
            if (why := self.refusal(requirement))
        ]

    def warn(self, policies: Iterable[Policy]) -> None:
        """Log each requirement that is ignored, once."""
        # The API server does not compile these expressions, so nobody else reports them.
        ignored = frozenset(
            (policy.name, why) for policy in policies for why in self.ignored(policy)
        )
        for name, why in sorted(ignored - self._warned):
            _LOG.warning("a policy's requirement is ignored", policy=name, reason=why)
        self._warned = ignored


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
