"""How far Fettle may go, for people: by setting, policy and namespace. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from fettle.cluster import View
from fettle.model import Mode, Policies, labelled_mode, wrong_label

MOST_NAMED = 5


def describe_modes(view: View, policies: Policies) -> list[str]:
    """The mode of the settings, then who has another one; wrong labels last."""
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
