"""`fettle explain sent`: whether creating an object reaches Fettle's webhook, and whether the
scheduler asks about its pods, by the files that are applied: webhook configurations and a
KubeSchedulerConfiguration. cel-python evaluates the conditions, as the API server would.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from fettle.api.raw import Raw, mapping, strings, text
from fettle.cel import ObjectJudge
from fettle.cli.linting.files import read
from fettle.dra import MARKER
from fettle.lint import Manifest, values_at
from fettle.model import BadInput

_PACKAGE = Path(__file__).parents[1]
SHIPPED = _PACKAGE / "deploy" if (_PACKAGE / "deploy").is_dir() else _PACKAGE.parent / "deploy"
"""In a wheel inside the package, else beside it."""
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_DEFAULT_SCHEDULER = "default-scheduler"
_NAME_LABEL = "kubernetes.io/metadata.name"
_MUTATES = "mutates"
_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Passage(NamedTuple):
    """What one webhook does with an object: `sent` is None if that is not known."""

    webhook: str
    mutates: bool
    sent: bool | None
    why: str


async def explain_sent(
    files: Sequence[str], webhooks: Sequence[str], scheduler: str, namespace: str, output: str
) -> None:
    """Print it for each object in these files. Raises BadInput."""
    known = _objects(webhooks or [str(SHIPPED / "webhook")], _CONFIGURATIONS, "--webhooks")
    configurations = [
        {**hook, _MUTATES: one.get("kind") == _CONFIGURATIONS[0]}
        for one in known
        for hook in _each(one.get("webhooks"))
    ]
    managed = _managed(scheduler or str(SHIPPED / "scheduler" / "kube-scheduler-config.yaml"))
    documents, _, problems, _ = read(files)
    if problems:
        raise BadInput("; ".join(problems))
    manifests = [Manifest(one.object, namespace) for one in documents]
    labels = {
        one.name: strings(mapping(one.object, "metadata").get("labels"))
        for one in manifests
        if (one.group, one.kind) == ("", "Namespace")
    }
    judge = ObjectJudge()
    try:
        asking = _Asking(configurations, managed, labels, judge)
        told = [await asking.about(one) for one in manifests]
    finally:
        await judge.close()
    if output == "json":
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo("\n\n".join(map(_in_words, told)))


def _objects(paths: Sequence[str], kinds: Sequence[str], flag: str) -> list[Raw]:
    documents, _, problems, _ = read(paths)
    if problems:
        raise BadInput(f"{flag}: {'; '.join(problems)}")
    found: list[Raw] = [one.object for one in documents if one.object.get("kind") in kinds]
    if not found:
        raise BadInput(f"{flag}: there is no {' or '.join(kinds)} in {', '.join(paths)}")
    return found


def _managed(path: str) -> tuple[str, ...] | None:
    """The resources by which a scheduler asks Fettle; None if it asks about every pod."""
    (configuration, *_) = _objects([path], ["KubeSchedulerConfiguration"], "--scheduler-config")
    ours = [one for one in _each(configuration.get("extenders")) if _lists_marker(one)]
    if not ours:
        raise BadInput(
            f"--scheduler-config: no extender in {path} is Fettle's: none has {MARKER} among its "
            "managedResources; `fettle scheduler-config` adds it"
        )
    return tuple(text(one.get("name")) for one in _each(ours[0].get("managedResources")))


def _lists_marker(extender: Raw) -> bool:
    return any(one.get("name") == MARKER for one in _each(extender.get("managedResources")))


class _Asking:
    """Knows the configurations, and the labels of the namespaces that the files define."""

    def __init__(
        self,
        webhooks: Sequence[Raw],
        managed: tuple[str, ...] | None,
        labels: Mapping[str, Mapping[str, str]],
        judge: ObjectJudge,
    ) -> None:
        self._webhooks = webhooks
        self._managed = managed
        self._labels = labels
        self._judge = judge

    async def about(self, manifest: Manifest) -> dict[str, Any]:
        passages = await self._passages(manifest)
        return {
            "kind": manifest.kind,
            "namespace": manifest.namespace if manifest.namespaced else "",
            "name": manifest.name,
            "sent": _any(one.sent for one in passages),
            "webhooks": [one._asdict() for one in passages],
            "namespaceKnown": not manifest.namespaced or manifest.namespace in self._labels,
            "pods": await self._asked(manifest, passages),
        }

    async def _passages(self, manifest: Manifest) -> list[Passage]:
        """Of the webhooks whose rules are about such an object."""
        about = [hook for hook in self._webhooks if _has_rule(hook, manifest)]
        return [await self._passage(hook, manifest) for hook in about]

    async def _passage(self, hook: Raw, manifest: Manifest) -> Passage:
        told = partial(Passage, text(hook.get("name")), bool(hook.get(_MUTATES)))
        space = {**self._labels.get(manifest.namespace, {}), _NAME_LABEL: manifest.namespace}
        if manifest.namespaced and (why := _unselected(hook.get("namespaceSelector"), space)):
            return told(False, f"the namespace: {why}")
        own = strings(mapping(manifest.object, "metadata").get("labels"))
        if why := _unselected(hook.get("objectSelector"), own):
            return told(False, f"the object's labels: {why}")
        conditions = [*_each(hook.get("matchConditions"))]
        request = {
            "operation": "CREATE",
            "namespace": manifest.namespace if manifest.namespaced else "",
            "name": manifest.name,
            "dryRun": False,
            "userInfo": {"username": "", "groups": []},
        }
        variables = {"object": manifest.object, "oldObject": None, "request": request}
        expressions = [text(one.get("expression")) for one in conditions]
        outcomes = await self._judge.conditions(expressions, _encoded(variables))
        named = [(text(c.get("name")), out) for c, out in zip(conditions, outcomes, strict=True)]
        if false := [condition for condition, outcome in named if outcome is False]:
            return told(False, f"its condition {', '.join(false)} is false")
        if unknown := [f"{condition}: {outcome}" for condition, outcome in named if outcome != 1]:
            return told(None, f"it cannot be told here: {'; '.join(unknown)}")
        return told(True, "")

    async def _asked(self, manifest: Manifest, passages: Sequence[Passage]) -> dict[str, Any]:
        """Whether the scheduler asks about the pods; `asked` is None if that is not known."""
        found = [await self._pod_asked(manifest, path, passages) for path in manifest.pod_specs]
        told = [one for several in found for one in several]
        if not told:
            return {"asked": False, "why": "it has no pods of its own that Fettle knows of"}
        return {
            "asked": _any(asked for asked, _ in told),
            "why": "; ".join(dict.fromkeys(why for _, why in told)),
        }

    async def _pod_asked(
        self, manifest: Manifest, path: tuple[str, ...], passages: Sequence[Passage]
    ) -> list[tuple[bool | None, str]]:
        told: list[tuple[bool | None, str]] = []
        for field in values_at(manifest.root, path[:-1]):
            pod = manifest if not path[:-1] else _made_of(mapping(field.value), manifest)
            of_pod = passages if pod is manifest else await self._passages(pod)
            sent = _any(one.sent for one in of_pod if one.mutates)
            told.append(self._why_asked(pod, sent))
        return told

    def _why_asked(self, pod: Manifest, sent: bool | None) -> tuple[bool | None, str]:
        spec = mapping(pod.object, "spec")
        requested = {name for one in pod.pods for name in one.resources}
        scheduler = text(spec.get("schedulerName")) or _DEFAULT_SCHEDULER
        note = "" if scheduler == _DEFAULT_SCHEDULER else f", if {scheduler} has this configuration"
        if self._managed is None or not self._managed:
            return True, f"its scheduler asks about every pod{note}"
        if listed := sorted(requested & {*self._managed}):
            return True, f"a pod requests {', '.join(listed)}{note}"
        claims = bool(spec.get("resourceClaims"))
        if not claims and not any(name.startswith(_IMPLICIT) for name in requested):
            others = ", ".join(sorted(name for name in requested if "/" in name))
            more = f": managedResources lacks {others}" if others else ""
            return False, f"a pod has no claims and requests nothing that is listed{more}"
        if scheduler != _DEFAULT_SCHEDULER:
            return None, f"that depends on `scheduler.names` in the settings having {scheduler}"
        if sent:
            return True, f"a pod has claims, and the webhook adds {MARKER}"
        if sent is None:
            return None, f"a pod has claims, and whether the webhook adds {MARKER} is not known"
        return False, f"a pod has claims, but does not reach the webhook that adds {MARKER}"


def _made_of(template: Raw, manifest: Manifest) -> Manifest:
    """The pod that a controller makes of a template."""
    metadata = {**mapping(template, "metadata"), "namespace": manifest.namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")}
    return Manifest(pod, manifest.namespace)


def _any(sent: Iterable[bool | None]) -> bool | None:
    several = [*sent]
    return True if True in several else None if None in several else False


def _encoded(variables: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(variables)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(f"an object cannot be written as JSON: {error}") from error


def _has_rule(hook: Raw, manifest: Manifest) -> bool:
    """Whether it is asked when such an object is created. Other versions of the same API group are
    converted to one that is listed (`matchPolicy: Equivalent`, which is the default)."""
    plural = _plural(manifest.kind)
    version = manifest.api_version.rpartition("/")[2]
    exact = hook.get("matchPolicy") == "Exact"
    return any(
        {"*", manifest.group} & {*_texts(rule.get("apiGroups"))}
        and {"*", "*/*", plural} & {*_texts(rule.get("resources"))}
        and {"*", "CREATE"} & {*_texts(rule.get("operations"))}
        and (not exact or {"*", version} & {*_texts(rule.get("apiVersions"))})
        for rule in _each(hook.get("rules"))
    )


def _plural(kind: str) -> str:
    """As apimachinery's UnsafeGuessKindToResource guesses it."""
    name = kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _unselected(selector: Any, labels: Mapping[str, str]) -> str:
    """Why a label selector does not match; "" if it does."""
    selector = mapping(selector)
    for key, wanted in strings(selector.get("matchLabels")).items():
        if labels.get(key) != wanted:
            return f"it lacks {key}={wanted}"
    for one in _each(selector.get("matchExpressions")):
        key, operator, values = text(one.get("key")), one.get("operator"), _texts(one.get("values"))
        has, value = key in labels, labels.get(key)
        if operator == "Exists" and not has:
            return f"it has no label {key}"
        if operator == "DoesNotExist" and has:
            return f"it has the label {key}"
        if operator == "In" and value not in values:
            return f"its label {key} is none of {', '.join(values)}"
        if operator == "NotIn" and value in values:
            return f"its label {key} is {value}"
    return ""


def _each(value: Any) -> list[Raw]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


_WORDS = {True: "yes", False: "no", None: "not known"}


def _in_words(told: Mapping[str, Any]) -> str:
    lines = [f"{told['kind']} {'/'.join(filter(None, (told['namespace'], told['name'])))}"]
    lines.append(f"  reaches the webhook when it is created: {_WORDS[told['sent']]}")
    if not told["webhooks"]:
        lines.append("    no webhook of Fettle's has a rule for such objects")
    for one in told["webhooks"]:
        why = f" ({one['why']})" if one["why"] else ""
        lines.append(f"    {one['webhook']}: {_WORDS[one['sent']]}{why}")
    if not told["namespaceKnown"]:
        lines.append(
            f"    as if namespace {told['namespace']} had no labels: name its Namespace, too"
        )
    pods = told["pods"]
    lines.append(f"  the scheduler asks about its pods: {_WORDS[pods['asked']]} ({pods['why']})")
    return "\n".join(lines)
