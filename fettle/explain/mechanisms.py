"""Which mechanisms keep pods off bad devices in this cluster, for people: by what is seen of nodes,
pods, taints and policies, whatever the settings say; and how far Fettle may go, by setting, policy
and namespace. docs/managed-clusters.md compares the mechanisms. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeVar

from fettle.api import kinds
from fettle.api.core import DEFAULT_SCHEDULER
from fettle.cluster import View
from fettle.model import (
    ASSESSED,
    DEGRADED_TAINT,
    HOLD,
    NO_SETTINGS,
    UNHEALTHY_TAINT,
    Mode,
    Placement,
    Policies,
    PolicyAffinity,
    labelled_mode,
    wrong_label,
)
from fettle.pacing import pause

MOST_NAMED = 5
MOST_LETTERS = 63
_NAMED_BY_NONE = "no policy asks for it"

_SEEN_BY = {
    "second scheduler": (kinds.POD.name, kinds.POLICY.name),
    "affinity": (kinds.NODE.name, kinds.POLICY.name),
    "taints": (kinds.NODE.name, kinds.TAINT_RULE.name),
    "cordon": (kinds.NODE.name,),
}
"""By mechanism: of which kinds the objects tell whether it acts."""

T = TypeVar("T")


class Mechanism(NamedTuple):
    """`acts`: whether it does so here; None if this process cannot know."""

    name: str
    acts: bool | None
    text: str


def describe_mechanisms(
    view: View,
    policies: Policies,
    schedulers: Collection[str],
    asked: bool | None,
    denied: Collection[str] = (),
) -> list[Mechanism]:
    """`schedulers`: the names of those that call Fettle. `asked`: whether one has called this
    process; None if it answers none. `denied`: the kinds whose objects may not be read."""
    known = (policies.find(name, view.policies)[0] for name in policies.names(view.policies))
    placements = {policy.name: policy.placement for policy in known if policy is not None}
    found = [
        _extender(asked),
        _second_scheduler(view, placements, schedulers),
        _affinity(view, placements),
        _taints(view),
        _cordon(view),
    ]
    return [_as_far_as_seen(one, denied) for one in found]


def _as_far_as_seen(found: Mechanism, denied: Collection[str]) -> Mechanism:
    lacking = [kind for kind in _SEEN_BY.get(found.name, ()) if kind in denied]
    if found.acts or not lacking:
        return found
    return Mechanism(found.name, None, f"the right to read is missing: {', '.join(lacking)}")


def _extender(asked: bool | None) -> Mechanism:
    if asked is None:
        return Mechanism("extender", None, "this process answers no scheduler: ask an extender")
    said = "has asked" if asked else "has not asked"
    return Mechanism("extender", asked, f"a scheduler {said} this process since it started")


def _second_scheduler(
    view: View, placements: dict[str, Placement], schedulers: Collection[str]
) -> Mechanism:
    seen = Counter(pod.scheduler_name for pod in _pausing(view.pods.values()))
    others = sorted({*schedulers} - {DEFAULT_SCHEDULER})
    using = [f"{_pods(seen[name])} with devices by {_cut(name)}" for name in others if seen[name]]
    by = _naming(name for name, one in placements.items() if one.scheduler is not None)
    return Mechanism("second scheduler", bool(using), "; ".join([*_first(using), by]))


def _pods(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"


def _affinity(view: View, placements: dict[str, Placement]) -> Mechanism:
    writing = [n for n, one in placements.items() if one.affinity is not PolicyAffinity.NONE]
    nodes = [node for node in _pausing(view.nodes.values()) if node.pools or node.plugins]
    labelled = sum(bool(node.marks.tier) for node in nodes)
    labels = f"{labelled} of {len(nodes)} nodes with devices have Fettle's labels"
    return Mechanism("affinity", bool(writing and labelled), f"{labels}; {_naming(writing)}")


def _taints(view: View) -> Mechanism:
    ours = (DEGRADED_TAINT, UNHEALTHY_TAINT)
    rules = [rule.spec.taint for rule in _pausing(view.taint_rules.values())]
    by_health = sum(one.key in ours and one.value == ASSESSED for one in rules)
    nodes = _pausing(view.nodes.values())
    held = sum(any(taint.key == HOLD for taint in node.taints) for node in nodes)
    text = f"{by_health} rules taint DRA devices by health, {held} nodes are tainted by holds"
    return Mechanism("taints", bool(by_health or held), text)


def _cordon(view: View) -> Mechanism:
    nodes = _pausing(view.nodes.values())
    cordoned = [node for node in nodes if node.unschedulable and (node.pools or node.plugins)]
    ours = sum(bool(node.marks.cordon) for node in cordoned)
    text = f"{ours} of {len(cordoned)} cordoned nodes with devices are cordoned by Fettle"
    return Mechanism("cordon", bool(ours), text)


def _pausing(values: Iterable[T]) -> Iterator[T]:
    for value in values:
        pause()
        yield value


def _naming(names: Iterable[str]) -> str:
    found = sorted(names)
    return f"asked for by {', '.join(_first(found))}" if found else _NAMED_BY_NONE


def _first(texts: list[str]) -> list[str]:
    more = [f"{len(texts) - MOST_NAMED} more"] if len(texts) > MOST_NAMED else []
    return [*map(_cut, texts[:MOST_NAMED]), *more]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"


def describe_modes(view: View, policies: Policies) -> list[str]:
    """The mode of the settings, then who has another one; wrong labels last."""
    if policies.mode_origin == NO_SETTINGS:
        lines = [f"mode: not known ({NO_SETTINGS}; judged as in {policies.mode})"]
    else:
        lines = [f"mode: {policies.mode} ({policies.mode_origin})"]
    by_policy: dict[Mode, list[str]] = defaultdict(list)
    for name in policies.names(view.policies):
        policy, _ = policies.find(name, view.policies)
        if policy is not None and policy.mode is not None:
            by_policy[policy.mode].append(name)
    lines += _named(by_policy, "policy", "policies")
    by_label: dict[Mode, list[str]] = defaultdict(list)
    wrong = []
    for name, labels in sorted(view.namespaces.items()):
        if (mode := labelled_mode(labels)) is not None:
            by_label[mode].append(name)
        elif why := wrong_label(labels):
            wrong.append(f"namespace {name}: {why}")
    return [*lines, *_named(by_label, "namespace", "namespaces"), *wrong[:MOST_NAMED]]


def _named(by_mode: dict[Mode, list[str]], one: str, many: str) -> Iterator[str]:
    for mode, names in sorted(by_mode.items()):
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        what = one if len(names) == 1 else many
        yield f"mode: {mode} for {what} {', '.join(names[:MOST_NAMED])}{more}"
