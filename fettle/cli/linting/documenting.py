"""Writes docs/rules.md from the rules.

`python -m fettle.cli.linting.documenting > docs/rules.md`
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby

from fettle.lint.checks import CHECKS
from fettle.lint.findings import Rule
from fettle.lint.rules import RULES

_HEAD = """\
# Lint rules

<!-- Made by `python -m fettle.cli.linting.documenting > docs/rules.md`; a test checks it. -->

What Fettle's webhook refuses or warns of when an object is written, and `fettle lint` in files. \
A DevicePolicy's `validation.rules`, or `lint.rules` in the settings, turn a rule to `Deny`, \
`Warn` or `Off`; `strict` denies what is marked *Deny if strict* too.

- Pods, and claims made from a template, are only warned of, unless `strict`: a controller that \
makes them would try again and again. What they were made from is the place to refuse. \
{denies_pods} denies pods as well.
- Rules marked ◇ look at what the cluster has: they say nothing before Fettle knows all of it, \
nor in `fettle lint` without `--snapshot` or `--kubeconfig`. Of a cluster, quotas (FTL055) and \
ComputeDomains (FTL024) are read only where `lint.watch` in the settings names them, with the \
rights of `deploy/rbac/optional/lint.yaml`.
- Objects that each rule catches were accepted by a real Kubernetes 1.37.1; where there is a ✓, \
they were then seen to fail there as the table says. Where there is a †, it is a driver or a \
kubelet that fails, on the node: claims were seen to be allocated and their pods bound without a \
word, and what follows rests on the source and documentation of these.
"""

_BESIDE = """\
## Said beside the rules

What `fettle lint` says of DevicePolicies and of what the API server refuses anyway. There these \
are turned to `Deny`, `Warn` or `Off` as rules are; the webhook warns of FTL101, FTL104 and \
FTL105, whatever is said of them.

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
