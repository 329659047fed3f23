"""Writes docs/rules.md from the rules.

`python -m fettle.cli.linting.documenting > docs/rules.md`
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby

from fettle.lint import CHECKS, RULES, Rule

_HEAD = """\
# Lint rules

<!-- Made by `python -m fettle.cli.linting.documenting > docs/rules.md`; a test checks it. -->

What Fettle's webhook refuses or warns about when an object is written, and `fettle lint` reports \
in files. A DevicePolicy's `validation.rules`, or `lint.rules` in the settings, set a rule to \
`Deny`, `Warn` or `Off`; `strict` also denies what is marked *Deny if strict*.

- Pods, and claims made from a template, only get warnings unless `strict`: a controller that \
creates them would retry again and again, so the place to refuse is what they are made from. \
{denies_pods} denies pods as well.
- Rules marked ◇ look at what the cluster has: they are silent until Fettle knows all of it, and \
in `fettle lint` without `--snapshot` or `--kubeconfig`. In a cluster, quotas (FTL055) and \
ComputeDomains (FTL024) are read only if `lint.watch` in the settings names them, with the \
rights in `deploy/rbac/optional/lint.yaml`.
- Where devices may be missing, such as those of a pool that waits for slices, or a selector \
cannot be decided, `fettle lint` says `Undecided` and why, if nothing else matches; `--fail-on \
undecided` makes that an error. The webhook lets it pass and counts it in \
`fettle_webhook_undecided_total`. Pools of other drivers do not count for selectors that begin \
with `device.driver == "…"`.
- A real Kubernetes 1.37.1 accepted the objects that each rule catches; with a ✓, they were then \
seen to fail there as the table says. With a †, it is a driver or a kubelet that fails, on the \
node: claims were seen to be allocated and their pods bound without complaint, and the rest is \
based on the source and documentation of these components.
"""

_BESIDE = """\
## Reported beside the rules

What `fettle lint` reports about DevicePolicies and about what the API server refuses anyway. \
There these are set to `Deny`, `Warn` or `Off` as rules are; the webhook warns about FTL101, \
FTL104, FTL105 and FTL107 to FTL109 whatever they are set to.

| | | mistake | what Kubernetes does |
|-|-|-|-|"""


def document(rules: Iterable[Rule] = RULES) -> str:
    """The whole file."""
    rules = sorted(rules, key=lambda rule: (_subject(rule), rule.id))
    pods = ", ".join(rule.id for rule in rules if rule.denies_pods)
    parts = [_HEAD.format(denies_pods=pods)]
    for subject, group in groupby(rules, key=_subject):
        parts.append(f"## {subject}\n")
        parts.append("| rule | | mistake | what Kubernetes does | |\n|-|-|-|-|-|")
        parts += [*(_row(rule) for rule in group), ""]
    parts.append(_BESIDE)
    parts += [
        f"| **{check.id}** {check.name} | {check.severity} | {check.mistake} | {check.today} |"
        for check in CHECKS
    ]
    return "\n".join(parts).rstrip() + "\n"


def _subject(rule: Rule) -> str:
    """From the first sentence of the rule's module: "Rules about ..."."""
    said = " ".join((sys.modules[type(rule).__module__].__doc__ or "").split())
    subject = said.removeprefix("Rules about ").partition(".")[0].partition(":")[0]
    return subject[:1].upper() + subject[1:]


def _row(rule: Rule) -> str:
    marks = "".join(_marks(rule))
    when = "strict" if rule.strict else rule.denies_if
    severity = f"{rule.severity}, Deny if {when}" if when else str(rule.severity)
    who = f"**{rule.id}** {rule.name}"
    return f"| {who} | {severity} | {rule.mistake} | {rule.today} | {marks} |"


def _marks(rule: Rule) -> Iterator[str]:
    if rule.inventory:
        yield "◇"
    if rule.seen:
        yield "✓"
    if rule.on_node:
        yield "†"


if __name__ == "__main__":
    sys.stdout.write(document())
