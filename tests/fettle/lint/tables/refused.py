"""What the API server refuses, and near misses that it accepts: both by its own word, which the
suite on the real control plane asks for."""

from copy import deepcopy
from typing import Any, NamedTuple

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.tables.case import claim, deployment, exactly, template

GONE = object()
"""As a value: the field is left out."""


class Refused(NamedTuple):
    """`says` is part of what is said of what is caught, "" for a near miss."""

    rule: str
    what: str
    object: Object
    says: str = ""

    def __str__(self) -> str:
        return f"{self.rule}-{'caught' if self.says else 'passes'}-{self.what}"


def put(made: Object, *edits: tuple[str, Any]) -> Object:
    """The object with these fields set; a path such as `spec.containers.0.name`."""
    made = deepcopy(made)
    for path, value in edits:
        *above, last = path.split("/")
        at: Any = made
        for key in above:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        if value is GONE:
            del at[last]
        elif isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value
    return made


POD = api.pod("p")
BOX = "spec/containers/0"
JOB = api.job("j")
CLAIM = claim(exactly(), name="r")
REQUEST = "spec/devices/requests/0"
DEPLOYMENT = deployment(1)
TEMPLATE = template(exactly(), name="r")
IN_JOB = "spec/template/spec"
DISRUPTED = [{"type": "DisruptionTarget"}]
FOR_ALL = {"operator": "Exists"}

STRUCTURE = [
    Refused(
        "FTL201",
        "a dropped limit",
        put(POD, (f"{BOX}/resources/limit", {"nvidia.com/gpu": 1})),
        "did you mean limits?",
    ),
    Refused("FTL201", "a limit", put(POD, (f"{BOX}/resources/limits", {"nvidia.com/gpu": 1}))),
    Refused(
        "FTL201",
        "a class outside exactly",
        put(CLAIM, (f"{REQUEST}/deviceClassName", "gpu.nvidia.com")),
        "DeviceRequest has no such field",
    ),
    Refused(
        "FTL201",
        "small letters",
        put(JOB, ("spec/backofflimit", 1)),
        "did you mean backoffLimit?",
    ),
    Refused(
        "FTL201",
        "labels in the singular",
        put(DEPLOYMENT, ("metadata/label", {})),
        "did you mean labels?",
    ),
    Refused("FTL201", "any label", put(POD, ("metadata/labels", {"limit": "x"}))),
    Refused(
        "FTL201",
        "a field of pods in a Deployment",
        put(DEPLOYMENT, ("spec/nodeSelector", {})),
        "DeploymentSpec has no such field",
    ),
    Refused("FTL202", "small letters", put(POD, (f"{BOX}/imagePullPolicy", "always")), "Always?"),
    Refused("FTL202", "as it is", put(POD, (f"{BOX}/imagePullPolicy", "Always"))),
    Refused("FTL202", "no text", put(POD, (f"{BOX}/imagePullPolicy", ""))),
    Refused(
        "FTL202",
        "a mode that there is not",
        put(CLAIM, (f"{REQUEST}/exactly/allocationMode", "Exact")),
        "must be one of All, ExactCount",
    ),
    Refused("FTL202", "a policy", put(POD, ("spec/restartPolicy", "never")), "Never?"),
    Refused(
        "FTL202",
        "of a container",
        put(
            POD,
            ("spec/initContainers", [{"name": "i", "image": "i", "restartPolicy": "always"}]),
        ),
        "Always?",
    ),
    Refused(
        "FTL202",
        "an operator",
        put(POD, ("spec/tolerations", [{"key": "a", "operator": "exists"}])),
        "Exists?",
    ),
    Refused(
        "FTL202",
        "an operator of labels",
        put(
            DEPLOYMENT,
            ("spec/selector/matchExpressions", [{"key": "app", "operator": "exists"}]),
        ),
        "Exists?",
    ),
    Refused(
        "FTL202",
        "an action",
        put(
            JOB,
            ("spec/podFailurePolicy/rules", [{"action": "fail", "onPodConditions": DISRUPTED}]),
        ),
        "must be one of Count",
    ),
    Refused("FTL203", "no containers", put(POD, ("spec/containers", GONE)), "is required"),
    Refused("FTL203", "null", put(POD, ("spec/containers", None)), "is required"),
    Refused(
        "FTL203",
        "no class",
        put(CLAIM, (f"{REQUEST}/exactly", {"count": 1})),
        "is required",
    ),
    Refused("FTL203", "no selector", put(DEPLOYMENT, ("spec/selector", GONE)), "is required"),
    Refused("FTL203", "no template", put(JOB, ("spec/template", GONE)), "is required"),
    Refused(
        "FTL203",
        "a header without a value",
        put(
            POD,
            (
                f"{BOX}/livenessProbe",
                {"httpGet": {"port": 1, "httpHeaders": [{"name": "a"}]}},
            ),
        ),
    ),
    Refused("FTL203", "no image", put(POD, (f"{BOX}/name", GONE)), "is required"),
    Refused("FTL204", "neither", put(CLAIM, (f"{REQUEST}", {"name": "gpu"})), "needs one of"),
    Refused(
        "FTL204",
        "both",
        put(
            TEMPLATE,
            (
                "spec/spec/devices/requests/0/firstAvailable",
                [{"name": "a", "deviceClassName": "gpu.nvidia.com"}],
            ),
        ),
        "exclude each other",
    ),
    Refused("FTL204", "one", CLAIM),
    Refused(
        "FTL204",
        "a name and a template",
        put(
            POD,
            (
                "spec/resourceClaims",
                [{"name": "a", "resourceClaimName": "a", "resourceClaimTemplateName": "a"}],
            ),
        ),
        "exclude each other",
    ),
    Refused(
        "FTL204",
        "no name and no template",
        put(POD, ("spec/resourceClaims", [{"name": "a"}])),
        "needs one of",
    ),
    Refused(
        "FTL204",
        "two volumes in one",
        put(
            POD,
            ("spec/volumes", [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
        ),
        "exclude each other",
    ),
    Refused("FTL204", "an empty volume", put(POD, ("spec/volumes", [{"name": "v"}]))),
    Refused("FTL204", "a probe of nothing", put(POD, (f"{BOX}/livenessProbe", {})), "needs one of"),
    Refused(
        "FTL204",
        "a variable from nowhere",
        put(POD, (f"{BOX}/env", [{"name": "A", "valueFrom": {}}])),
        "needs one of",
    ),
    Refused(
        "FTL204",
        "a variable from two places",
        put(
            POD,
            (
                f"{BOX}/env",
                [{"name": "A", "value": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec"}}}],
            ),
        ),
        "exclude each other",
    ),
    Refused(
        "FTL204",
        "a variable with an empty value",
        put(
            POD,
            (
                f"{BOX}/env",
                [
                    {
                        "name": "A",
                        "value": "",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                    }
                ],
            ),
        ),
    ),
    Refused(
        "FTL204",
        "a rule on nothing",
        put(JOB, ("spec/podFailurePolicy/rules", [{"action": "FailJob"}])),
        "needs one of",
    ),
    Refused("FTL206", "a kind of another group", put(DEPLOYMENT, ("apiVersion", "v1")), "apps/v1"),
    Refused("FTL206", "a misspelt kind", put(POD, ("kind", "Podd")), "did you mean Pod?"),
    Refused("FTL206", "a kind in small letters", put(JOB, ("kind", "job")), "did you mean Job?"),
    Refused("FTL206", "a misspelt group", put(JOB, ("apiVersion", "bach/v1")), "batch/v1?"),
    Refused("FTL206", "no apiVersion", put(JOB, ("apiVersion", GONE)), "is required"),
    Refused(
        "FTL206",
        "apiversion",
        put(JOB, ("apiVersion", GONE), ("apiversion", "batch/v1")),
        "did you mean apiVersion?",
    ),
    Refused("FTL206", "as it is", DEPLOYMENT),
    Refused(
        "FTL106",
        "a size in bytes",
        put(POD, (f"{BOX}/resources/limits", {"memory": "64GB"})),
        "must be a quantity",
    ),
    Refused("FTL106", "a size", put(POD, (f"{BOX}/resources/limits", {"memory": "64G"}))),
]
