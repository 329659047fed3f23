"""Generates docs/rules.md from the rules, and the sentence with their numbers in other files.

`python -m fettle.cli.linting.documenting > docs/rules.md`, and
`python -m fettle.cli.linting.documenting README.md docs/linting.md`
"""

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from fettle.cli.linting.reports import anchor, when
from fettle.lint import CHECKS, REFUSALS, RULES, Check, Rule, Severity

_HEAD = """\
# Lint rules

<!-- Made by `python -m fettle.cli.linting.documenting > docs/rules.md`; a test checks it. -->

Fettle's webhook refuses these mistakes, or warns about them, when an object is written. \
`fettle lint` reports them in files. `validation.rules` of a DevicePolicy, or `lint.rules` in the \
settings, set a rule to `Deny`, `Warn` or `Off`. `strict` also denies what is marked *Deny if \
strict*. {counts}

- **What is denied.** By default: what no cluster could satisfy, because the object contradicts \
itself, and what the devices of a driver contradict. The latter needs selectors that name the \
driver (`device.driver == "…"`), as those of most classes do, devices that match the class, and \
complete pools of that driver. Only in strict mode: what more devices could satisfy, such as \
counts, sizes and classes that are not there yet. \
[Decision 0041](decisions/0041-lint-denies-only-what-no-growth-could-satisfy.md) draws the line.
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

_REFUSED = """\
## Refused by the API server

`fettle lint` reports these, the webhook never sees such an object. The API server refuses each \
mistake, and accepts the near misses, in a test on a real Kubernetes 1.37.1; JobSet's own webhook \
refuses those of FTL235, FTL245 and FTL246, LeaderWorkerSet's those of FTL248, and \
KubeRay's operator those of FTL249. In workloads of other projects than Kubernetes, JobSet and \
LeaderWorkerSet they only warn, since a controller may complete what it makes.

| | | mistake |
|-|-|-|"""

_BESIDE = """\
## Reported beside the rules

`fettle lint` also reports mistakes in DevicePolicies, and what the API server refuses anyway. \
There, set them to `Deny`, `Warn` or `Off` as you set rules. The webhook warns about FTL101, \
FTL104, FTL105, FTL107 to FTL109, FTL111, FTL115 and FTL118 whatever they are set to. It is not \
asked about the objects of FTL114. Of policies in the settings the log says the same at start, and \
so does `fettle lint --settings`.

| | | mistake | what Kubernetes does |
|-|-|-|-|"""


def document(rules: Iterable[Rule] = RULES) -> str:
    """The whole file."""
    rules = sorted(rules, key=lambda rule: (_subject(rule), rule.id))
    pods = ", ".join(rule.id for rule in rules if rule.denies_pods)
    parts = [_HEAD.format(denies_pods=pods, counts=counts(rules))]
    for subject, group in groupby(rules, key=_subject):
        parts.append(f"## {subject}\n")
        parts.append("| rule | | mistake | what Kubernetes does | |\n|-|-|-|-|-|")
        parts += [*(_row(rule) for rule in group), ""]
    parts.append(_REFUSED)
    parts += [f"| {_who(r)} | {r.severity} | {r.mistake} |" for r in REFUSALS]
    parts += ["", _BESIDE]
    parts += [
        f"| {_who(check)} | {check.severity} | {check.mistake} | {check.today} |"
        for check in CHECKS
    ]
    return "\n".join(parts).rstrip() + "\n"


def counts(rules: Iterable[Rule] = RULES) -> str:
    """How many rules there are, and which of them deny when."""
    rules = list(rules)
    deny = [rule for rule in rules if rule.severity is Severity.DENY]
    partly = [rule for rule in rules if rule not in deny and rule.denies_if]
    warn = [rule for rule in rules if rule not in deny and rule not in partly]
    strict = len(deny) + sum(1 for rule in (*partly, *warn) if rule.strict)
    return (
        f"Of {len(rules)} lint rules, {len(deny)} always deny, {len(partly)} in cases that they "
        f"name, and {len(warn)} only warn. With `lint.strict`, {strict} always deny."
    )


_COUNTS = re.compile(r"(<!-- rules -->\n).*?(\n<!-- /rules -->)", re.DOTALL)


def with_counts(text: str) -> str:
    """The text with the present numbers between `<!-- rules -->` and `<!-- /rules -->`."""
    return _COUNTS.sub(lambda found: f"{found[1]}{counts()}{found[2]}", text)


def _subject(rule: Rule) -> str:
    """The subject in the first sentence of the rule's module, "Rules about ..."."""
    said = " ".join((sys.modules[type(rule).__module__].__doc__ or "").split())
    subject = said.removeprefix("Rules about ").partition(".")[0].partition(":")[0]
    return subject[:1].upper() + subject[1:]


def _row(rule: Rule) -> str:
    marks = "".join(_marks(rule))
    return f"| {_who(rule)} | {when(rule)} | {rule.mistake} | {rule.today} | {marks} |"


def _who(rule: Rule | Check) -> str:
    return f'<a id="{anchor(rule.id)}"></a>**{rule.id}** {rule.name}'


def _marks(rule: Rule) -> Iterator[str]:
    if rule.inventory:
        yield "◇"
    if rule.reproduced:
        yield "✓"
    if rule.on_node:
        yield "†"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(with_counts(path.read_text(encoding="utf-8")), encoding="utf-8")
    if not sys.argv[1:]:
        sys.stdout.write(document())
