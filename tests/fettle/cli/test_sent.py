"""`fettle explain sent`: what reaches Fettle, by the files of deploy/."""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from tests.controlplane import objects as api
from tests.fettle.cli.linted import ROOT, called

NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team", "labels": {"fettle.dev/policy": "training"}},
}
BARE = {"containers": [{"name": "c", "image": "i"}]}


def _pod(namespace: str = "default", spec: Any = BARE, **annotations: str) -> Any:
    metadata = {"name": "p", "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _of(resource: str) -> Any:
    return {"containers": [{"name": "c", "image": "i", "resources": {"limits": {resource: 1}}}]}


CLAIMS = {**BARE, "resourceClaims": [{"name": "g", "resourceClaimName": "g"}]}
ANNOTATED = _pod()
ANNOTATED["metadata"]["annotations"] = {"fettle.dev/policy": "training"}


def _said(folder: Path, *given: Any, more: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What is said of each of these objects that may be sent."""
    file = folder / "objects.yaml"
    file.write_bytes(b"\n---\n".join(msgspec.yaml.encode(one) for one in given))
    ran = called("explain", "sent", str(file), "-o", "json", *more)
    assert ran.returncode == 0, ran.stderr
    told: list[dict[str, Any]] = json.loads(ran.stdout)
    return told


SENT: list[tuple[Any, list[str], bool | None]] = [
    (_pod(), [], False),
    (ANNOTATED, ["pods.mutate.fettle.dev"], False),
    (_pod(spec=CLAIMS), ["pods.mutate.fettle.dev", "pods.validate.fettle.dev"], True),
    (_pod("kube-system", CLAIMS), [], False),
    (_pod(spec={**CLAIMS, "schedulerName": "mine"}), ["pods.mutate.fettle.dev"], None),
    (_pod(spec=_of("nvidia.com/gpu")), ["pods.validate.fettle.dev"], True),
    (_pod(spec=_of("example.com/own")), ["pods.validate.fettle.dev"], False),
    (
        _pod("team", _of("example.com/own")),
        ["labelled-pods.mutate.fettle.dev", "pods.validate.fettle.dev"],
        False,
    ),
    (_pod("team"), [], False),
    (api.job("j", gpus=1), [], True),
]


def test_it_is_told_which_webhooks_are_asked_and_whether_the_scheduler_asks(
    tmp_path: Path,
) -> None:
    _, *told = _said(tmp_path, NAMESPACE, *(given for given, _, _ in SENT))
    for (given, webhooks, asked), said in zip(SENT, told, strict=True):
        reached = [one["webhook"] for one in said["webhooks"] if one["sent"]]
        assert set(webhooks) <= set(reached), given
        assert said["pods"]["asked"] is asked, given
        if not webhooks and not asked:
            assert (said["sent"], reached) == (False, []), given


def test_of_a_condition_that_cannot_be_evaluated_nothing_is_claimed(tmp_path: Path) -> None:
    hook = {
        "name": "a.example.com",
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
        ],
        "matchConditions": [
            {"name": "may", "expression": "authorizer.group('').resource('pods').check('get')"}
        ],
    }
    file = tmp_path / "hooks.yaml"
    made = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "a"}}
    kind = "MutatingWebhookConfiguration"
    file.write_bytes(msgspec.yaml.encode({**made, "kind": kind, "webhooks": [hook]}))
    (told,) = _said(tmp_path, _pod(spec=CLAIMS), more=("--webhooks", str(file)))
    (passage,) = told["webhooks"]
    assert (told["sent"], passage["sent"], told["pods"]["asked"]) == (None, None, None)
    assert passage["why"].startswith("it cannot be told here: may: ")


def test_the_example_of_the_page_is_what_it_prints() -> None:
    page = (ROOT / "docs" / "linting.md").read_text()
    command, _, shown = (
        page.partition("$ fettle explain sent ")[2].partition("\n```")[0].partition("\n")
    )
    ran = called("explain", "sent", command)
    assert ran.stdout == f"{shown}\n"


def test_wrong_files_are_bad_input(tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_bytes(msgspec.yaml.encode(_pod()))
    for more, said in (
        (("--webhooks", str(pod)), "--webhooks: there is no MutatingWebhookConfiguration or"),
        (("--webhooks", str(tmp_path / "a")), "No such file or directory"),
        (("--scheduler-config", str(pod)), "there is no KubeSchedulerConfiguration in"),
    ):
        ran: subprocess.CompletedProcess[str] = called("explain", "sent", str(pod), *more)
        assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr
