"""Generates docs/rules.md from the rules.

`python -m fettle.cli.linting.documenting > docs/rules.md`
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby

from fettle.lint import CHECKS, RULES, Rule

_HEAD = """\
# Lint rules

<!-- Made by `python -m fettle.cli.linting.documenting > docs/rules.md`; a test checks it. -->

Fettle's webhook refuses these mistakes, or warns about them, when an object is written. \
`fettle lint` reports them in files. `validation.rules` of a DevicePolicy, or `lint.rules` in the \
settings, set a rule to `Deny`, `Warn` or `Off`. `strict` also denies what is marked *Deny if \
strict*.

- **Pods, and claims made from a template, only get warnings** unless `strict` is set. The \
controller that creates them would retry again and again, so the place to refuse is what they are \
made from. Exception: {denies_pods} denies pods as well.
- **◇: the rule looks at what the cluster has.** It is silent until Fettle knows all of it, and in \
`fettle lint` without `--snapshot` or `--kubeconfig`. In a cluster, Fettle reads quotas (FTL055) \
and ComputeDomains (FTL024) only if `lint.watch` in the settings names them. The rights for that \
are in `deploy/rbac/optional/lint.yaml`.
- **Undecided.** Devices may be missing, such as those of a pool that waits for slices, or a \
selector cannot be decided. If nothing else matches, `fettle lint` then says `Undecided` and why; \
`--fail-on undecided` makes that an error. The webhook allows the object and counts it in \
`fettle_webhook_undecided_total`. Pools of other drivers do not count for selectors that begin \
with `device.driver == "…"`.
- **✓: seen to fail.** A real Kubernetes 1.37.1 accepted the objects that each rule catches. Those \
of a rule with ✓ were then seen to fail there as the table says.
- **†: a driver or a kubelet fails, on the node.** Claims were seen to be allocated and their pods \
bound without complaint. The rest is based on the source and documentation of these components.
"""

_BESIDE = """\
## Reported beside the rules

`fettle lint` also reports mistakes in DevicePolicies, and what the API server refuses anyway. \
There, set them to `Deny`, `Warn` or `Off` as you set rules. The webhook warns about FTL101, \
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
    """The subject in the first sentence of the rule's module, "Rules about ..."."""
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
    if rule.reproduced:
        yield "✓"
    if rule.on_node:
        yield "†"


if __name__ == "__main__":
    sys.stdout.write(document())
