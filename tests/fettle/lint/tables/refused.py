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
SLICE = api.resource_slice("n", 1)


def stateful(name: str) -> Object:
    made = put(DEPLOYMENT, ("kind", "StatefulSet"), ("spec/serviceName", "s"))
    return put(made, ("metadata/name", name))


STRUCTURE = [
    Refused("FTL239", "64 characters", stateful("s" * 64), "has 64 characters; at most 63 may be"),
    Refused("FTL239", "52 characters", stateful("s" * 52)),
    Refused(
        "FTL203",
        "a derived attribute whose expression is empty",
        put(CLAIM, (f"{REQUEST}/exactly/derivedAttributes", [{"name": "a", "expression": ""}])),
    ),
    Refused(
        "FTL203",
        "a derived attribute without a name",
        put(CLAIM, (f"{REQUEST}/exactly/derivedAttributes", [{"expression": "'a'"}])),
    ),
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
    Refused(
        "FTL203",
        "zeros that may be left out",
        put(SLICE, ("spec/pool/generation", GONE), ("spec/devices/0/capacity", {"memory": {}})),
    ),
    Refused(
        "FTL203",
        "a counter without a value",
        put(
            SLICE,
            ("spec/devices", GONE),
            ("spec/sharedCounters", [{"name": "s", "counters": {"memory": {}}}]),
        ),
    ),
    Refused(
        "FTL203",
        "a preference of nothing",
        put(
            POD,
            (
                "spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution",
                [{"weight": 1}],
            ),
        ),
    ),
    Refused(
        "FTL204",
        "an attribute without text",
        put(SLICE, ("spec/devices/0/attributes", {"alias": {"string": ""}})),
    ),
    Refused(
        "FTL204",
        "an attribute without a value",
        put(SLICE, ("spec/devices/0/attributes", {"alias": {}})),
        "needs one of",
    ),
    Refused(
        "FTL204",
        "a projection of nothing",
        put(POD, ("spec/volumes", [{"name": "v", "projected": {"sources": [{}]}}])),
    ),
    Refused("FTL203", "an entry of nothing", put(POD, ("spec/containers", [None])), "is required"),
    Refused("FTL203", "an argument of nothing", put(POD, (f"{BOX}/args", [None]))),
    Refused(
        "FTL106",
        "a port in quotes",
        put(POD, (f"{BOX}/livenessProbe", {"httpGet": {"port": "80"}})),
        "must be a whole number or the name of a port",
    ),
    Refused(
        "FTL106", "a named port", put(POD, (f"{BOX}/livenessProbe", {"httpGet": {"port": "web"}}))
    ),
]

GPU = "nvidia.com/gpu"
CODES = {"operator": "In", "values": [1]}


def limits(**amounts: Any) -> Object:
    return put(POD, (f"{BOX}/resources", {"limits": amounts}))


def amounts(request: Any, limit: Any, resource: str = GPU) -> Object:
    resources = {"requests": {resource: request}, "limits": {resource: limit}}
    return put(POD, (f"{BOX}/resources", resources))


def constrained(**constraint: Any) -> Object:
    return put(CLAIM, ("spec/devices/constraints", [constraint]))


def affine(**expression: Any) -> Object:
    terms = [{"matchExpressions": [{"key": "zone", **expression}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return put(POD, ("spec/affinity", {"nodeAffinity": required}))


def tolerating(**toleration: Any) -> Object:
    return put(POD, ("spec/tolerations", [toleration]))


def with_policy(rule: Object, *edits: tuple[str, Any]) -> Object:
    return put(JOB, ("spec/podFailurePolicy/rules", [rule]), *edits)


def on_exit(action: str = "FailJob", **codes: Any) -> Object:
    return {"action": action, "onExitCodes": {**CODES, **codes}}


TWO = put(CLAIM, ("spec/devices/requests", [exactly("a"), exactly("b")]))
CRON = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": JOB["spec"]}},
}
MOUNT = {"name": "v", "mountPath": "/v"}
VOLUME = {"name": "v", "emptyDir": {}}
CLAIMS = [{"name": "g", "resourceClaimName": "g"}]

RULES_OF_CLAIMS = [
    Refused(
        "FTL210",
        "two of one name",
        put(TWO, ("spec/devices/requests/1/name", "a")),
        "another one already",
    ),
    Refused("FTL210", "two names", TWO),
    Refused(
        "FTL210",
        "two alternatives of one name",
        put(
            CLAIM,
            (
                REQUEST,
                {
                    "name": "g",
                    "firstAvailable": [{"name": "a", "deviceClassName": "c"}] * 2,
                },
            ),
        ),
        "another one already",
    ),
    Refused(
        "FTL211",
        "a constraint for another",
        put(
            TWO,
            (
                "spec/devices/constraints",
                [{"requests": ["a", "c"], "matchAttribute": "d.example.com/x"}],
            ),
        ),
        "no request 'c', but a, b",
    ),
    Refused(
        "FTL211",
        "a configuration for another",
        put(
            CLAIM,
            (
                "spec/devices/config",
                [{"requests": ["gpux"], "opaque": {"driver": "d", "parameters": {}}}],
            ),
        ),
        "no request 'gpux'",
    ),
    Refused(
        "FTL211",
        "a configuration for it",
        put(
            CLAIM,
            (
                "spec/devices/config",
                [{"requests": ["gpu"], "opaque": {"driver": "d", "parameters": {}}}],
            ),
        ),
    ),
    Refused(
        "FTL212",
        "a count of all",
        put(CLAIM, (f"{REQUEST}/exactly/allocationMode", "All"), (f"{REQUEST}/exactly/count", 2)),
        "no meaning",
    ),
    Refused("FTL212", "less than none", put(CLAIM, (f"{REQUEST}/exactly/count", -1)), "zero"),
    Refused("FTL212", "all", put(CLAIM, (f"{REQUEST}/exactly/allocationMode", "All"))),
    Refused("FTL213", "no domain", constrained(matchAttribute="numa"), "has no domain"),
    Refused("FTL213", "no attribute", constrained(), "needs one of"),
    Refused("FTL213", "a domain", constrained(matchAttribute="a.example.com/numa")),
    Refused(
        "FTL214",
        "33 requests",
        put(CLAIM, ("spec/devices/requests", [exactly(f"r{i}") for i in range(33)])),
        "at most 32",
    ),
    Refused(
        "FTL214",
        "32 requests",
        put(CLAIM, ("spec/devices/requests", [exactly(f"r{i}") for i in range(32)])),
    ),
    Refused(
        "FTL214",
        "9 alternatives",
        put(
            CLAIM,
            (
                REQUEST,
                {
                    "name": "g",
                    "firstAvailable": [{"name": f"a{i}", "deviceClassName": "c"} for i in range(9)],
                },
            ),
        ),
        "at most 8",
    ),
    Refused("FTL215", "a large letter", put(CLAIM, (f"{REQUEST}/name", "GPUs")), "small letters"),
    Refused(
        "FTL215",
        "a class with an underscore",
        put(CLAIM, (f"{REQUEST}/exactly/deviceClassName", "gpu_big")),
        "small letters",
    ),
    Refused("FTL215", "a hyphen", put(CLAIM, (f"{REQUEST}/name", "gpu-0"))),
    Refused(
        "FTL216",
        "a value that does not count",
        put(
            CLAIM,
            (f"{REQUEST}/exactly/tolerations", [{"key": "a", "value": "b", "operator": "Exists"}]),
        ),
        "takes no value",
    ),
    Refused(
        "FTL216",
        "a value",
        put(CLAIM, (f"{REQUEST}/exactly/tolerations", [{"key": "a", "value": "b"}])),
    ),
]
RULES_OF_PODS = [
    Refused(
        "FTL220",
        "two containers of one name",
        put(POD, ("spec/containers", [POD["spec"]["containers"][0]] * 2)),
        "another one already",
    ),
    Refused(
        "FTL220",
        "an init container of that name",
        put(POD, ("spec/initContainers", POD["spec"]["containers"])),
        "another one already",
    ),
    Refused(
        "FTL220", "two volumes of one name", put(POD, ("spec/volumes", [VOLUME] * 2)), "already"
    ),
    Refused(
        "FTL220",
        "two mounts at one path",
        put(POD, ("spec/volumes", [VOLUME]), (f"{BOX}/volumeMounts", [MOUNT] * 2)),
        "already",
    ),
    Refused(
        "FTL220",
        "a volume at two paths",
        put(
            POD,
            ("spec/volumes", [VOLUME]),
            (f"{BOX}/volumeMounts", [MOUNT, {**MOUNT, "mountPath": "/w"}]),
        ),
    ),
    Refused(
        "FTL220",
        "two variables of one name",
        put(POD, (f"{BOX}/env", [{"name": "A"}] * 2)),
    ),
    Refused(
        "FTL221",
        "a claim that the pod lacks",
        put(
            POD,
            ("spec/resourceClaims", CLAIMS),
            (f"{BOX}/resources/claims", [{"name": "gpu"}]),
        ),
        "no 'gpu', but g",
    ),
    Refused(
        "FTL221",
        "a volume that it lacks",
        put(POD, (f"{BOX}/volumeMounts", [MOUNT])),
        "volumes have no 'v'",
    ),
    Refused(
        "FTL221",
        "a claim that it has",
        put(POD, ("spec/resourceClaims", CLAIMS), (f"{BOX}/resources/claims", [{"name": "g"}])),
    ),
    Refused("FTL222", "half a device", limits(**{GPU: "500m"}), "must be a whole number"),
    Refused("FTL222", "half a device as a number", limits(**{GPU: 0.5}), "must be a whole number"),
    Refused("FTL222", "two devices", limits(**{GPU: "2"})),
    Refused("FTL222", "half a processor", limits(cpu=0.5)),
    Refused("FTL222", "no domain", limits(gpu=1), "names no domain"),
    Refused("FTL222", "large letters", limits(CPU=1), "names no domain"),
    Refused("FTL222", "less than none", limits(**{GPU: -1}), "less than 0"),
    Refused(
        "FTL222",
        "a request without a limit",
        put(POD, (f"{BOX}/resources", {"requests": {GPU: 1}})),
        "needs a limit",
    ),
    Refused("FTL222", "another limit", amounts(1, 2), "must equal the limit"),
    Refused("FTL222", "the same limit in other words", amounts(1000, "1k")),
    Refused("FTL222", "more than the limit", amounts("2Gi", "1Gi", "memory"), "more than"),
    Refused("FTL222", "less than the limit", amounts("1Gi", "2Gi", "memory")),
    Refused("FTL223", "In nothing", affine(operator="In"), "In needs values"),
    Refused(
        "FTL223", "Exists with values", affine(operator="Exists", values=["a"]), "takes no values"
    ),
    Refused("FTL223", "Gt of two", affine(operator="Gt", values=["1", "2"]), "exactly one"),
    Refused("FTL223", "Gt of one", affine(operator="Gt", values=["1"])),
    Refused("FTL223", "In one", affine(operator="In", values=["a"])),
    Refused(
        "FTL223",
        "a value of what exists",
        tolerating(key="a", operator="Exists", value="b"),
        "takes no value",
    ),
    Refused("FTL223", "no key", tolerating(operator="Equal", value="b"), "needs a key"),
    Refused(
        "FTL223",
        "seconds of NoSchedule",
        tolerating(key="a", effect="NoSchedule", tolerationSeconds=1),
        "needs effect: NoExecute",
    ),
    Refused("FTL223", "everything", tolerating(operator="Exists")),
    Refused(
        "FTL224", "a name with an underscore", put(POD, (f"{BOX}/name", "my_box")), "small letters"
    ),
    Refused("FTL224", "a name with a hyphen", put(POD, (f"{BOX}/name", "my-box"))),
    Refused("FTL225", "no image", put(POD, (f"{BOX}/image", GONE)), "is required"),
    Refused(
        "FTL225",
        "no image in a template",
        put(DEPLOYMENT, ("spec/template/spec/containers/0/image", GONE)),
        "is required",
    ),
    Refused("FTL225", "an image", POD),
]
RULES_OF_JOBS = [
    Refused(
        "FTL230",
        "restarts",
        with_policy(on_exit(), (f"{IN_JOB}/restartPolicy", "OnFailure")),
        "needs Never",
    ),
    Refused("FTL230", "exit code 0", with_policy(on_exit(values=[0])), "cannot contain 0"),
    Refused("FTL230", "not exit code 0", with_policy(on_exit(operator="NotIn", values=[0]))),
    Refused("FTL230", "descending", with_policy(on_exit(values=[2, 1])), "ascending"),
    Refused(
        "FTL230",
        "FailIndex without indexes",
        with_policy(on_exit("FailIndex")),
        "needs backoffLimitPerIndex",
    ),
    Refused(
        "FTL230",
        "FailIndex with indexes",
        with_policy(
            on_exit("FailIndex"),
            ("spec/backoffLimitPerIndex", 1),
            ("spec/completionMode", "Indexed"),
        ),
    ),
    Refused(
        "FTL230",
        "a limit per index without indexes",
        put(JOB, ("spec/backoffLimitPerIndex", 1)),
        "needs completionMode: Indexed",
    ),
    Refused(
        "FTL231",
        "a container that is not there",
        with_policy(on_exit(containerName="mian")),
        "no container 'mian'",
    ),
    Refused("FTL231", "one that is", with_policy(on_exit(containerName="main"))),
    Refused(
        "FTL232", "always", put(JOB, (f"{IN_JOB}/restartPolicy", "Always")), "OnFailure or Never"
    ),
    Refused("FTL232", "not said", put(JOB, (f"{IN_JOB}/restartPolicy", GONE)), "OnFailure or"),
    Refused("FTL232", "on failure", put(JOB, (f"{IN_JOB}/restartPolicy", "OnFailure"))),
    Refused(
        "FTL232",
        "in a CronJob",
        put(CRON, ("spec/jobTemplate/spec/template/spec/restartPolicy", "Always")),
        "OnFailure or Never",
    ),
    Refused(
        "FTL233",
        "without completions",
        put(JOB, ("spec/completionMode", "Indexed"), ("spec/completions", GONE)),
        "is required",
    ),
    Refused("FTL233", "with completions", put(JOB, ("spec/completionMode", "Indexed"))),
    Refused(
        "FTL233",
        "success of indexes",
        put(JOB, ("spec/successPolicy", {"rules": [{"succeededCount": 1}]})),
        "needs completionMode: Indexed",
    ),
    Refused("FTL234", "four fields", put(CRON, ("spec/schedule", "0 * * *")), "has 4 fields"),
    Refused("FTL234", "a word", put(CRON, ("spec/schedule", "@hourly"))),
    Refused("FTL234", "a time zone", put(CRON, ("spec/schedule", "TZ=UTC 0 * * * *")), "zone"),
    Refused("FTL234", "five fields", CRON),
]
RULES_OF_OBJECTS = [
    Refused("FTL240", "no name", put(POD, ("metadata/name", GONE)), "is required"),
    Refused(
        "FTL240",
        "a name that is made",
        put(POD, ("metadata/name", GONE), ("metadata/generateName", "p-")),
    ),
    Refused("FTL240", "a large letter", put(POD, ("metadata/name", "Pod")), "small letters"),
    Refused("FTL240", "a dot", put(POD, ("metadata/name", "p.q"))),
    Refused(
        "FTL241",
        "a value with a space",
        put(POD, ("metadata/labels", {"a": "b c"})),
        "the value 'b c'",
    ),
    Refused(
        "FTL241", "two slashes", put(POD, ("metadata/labels", {"a/b/c": "d"})), "the key 'a/b/c'"
    ),
    Refused("FTL241", "no value", put(POD, ("metadata/labels", {"a.example.com/b": ""}))),
    Refused(
        "FTL241",
        "a selector of nodes",
        put(POD, ("spec/nodeSelector", {"a": "NVIDIA H100"})),
        "the value",
    ),
    Refused("FTL241", "any annotation", put(POD, ("metadata/annotations", {"a": "b c"}))),
    Refused(
        "FTL250",
        "other labels",
        put(DEPLOYMENT, ("spec/selector/matchLabels", {"app": "x"})),
        "selects 'x'",
    ),
    Refused(
        "FTL250",
        "no labels",
        put(DEPLOYMENT, ("spec/template/metadata", {})),
        "do not have it",
    ),
    Refused("FTL250", "nothing", put(DEPLOYMENT, ("spec/selector", {})), "must select something"),
    Refused(
        "FTL250",
        "more labels than selected",
        put(DEPLOYMENT, ("spec/template/metadata/labels/more", "x")),
    ),
    Refused(
        "FTL251",
        "never",
        put(DEPLOYMENT, ("spec/template/spec/restartPolicy", "Never")),
        "must be Always",
    ),
    Refused("FTL251", "not said", put(DEPLOYMENT, ("spec/template/spec/restartPolicy", GONE))),
    Refused(
        "FTL252",
        "both strategies",
        put(DEPLOYMENT, ("spec/strategy", {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})),
        "may not be there",
    ),
    Refused(
        "FTL252",
        "no way to roll",
        put(DEPLOYMENT, ("spec/strategy", {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})),
        "both be 0",
    ),
    Refused("FTL252", "one strategy", put(DEPLOYMENT, ("spec/strategy", {"type": "Recreate"}))),
    Refused("FTL209", "less than none", put(DEPLOYMENT, ("spec/replicas", -1)), "at least 0"),
    Refused("FTL209", "none", put(DEPLOYMENT, ("spec/replicas", 0))),
    Refused(
        "FTL209",
        "a port that there is not",
        put(POD, (f"{BOX}/ports", [{"containerPort": 70000}])),
        "at most 65535",
    ),
]
SLICE = api.resource_slice("n", 1, name="s")
RULES_OF_OBJECTS += [
    Refused("FTL203", "the first generation", put(SLICE, ("spec/pool/generation", GONE))),
    Refused("FTL203", "no pool", put(SLICE, ("spec/pool", GONE)), "is required"),
    Refused(
        "FTL204",
        "an empty attribute",
        put(SLICE, ("spec/devices/0/attributes", {"a": {"string": ""}})),
    ),
    Refused(
        "FTL204",
        "an attribute without a value",
        put(SLICE, ("spec/devices/0/attributes", {"a": {}})),
        "needs one of",
    ),
]
"""What the API server judges."""


def job_set(*names: str, **spec: Any) -> Object:
    entries = [{"name": name, "template": {"spec": JOB["spec"]}} for name in names]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "default"},
        "spec": {"replicatedJobs": entries, **spec},
    }


def restarting_in_place(*dropped: str, **job: Any) -> Object:
    """As JobSet's own example, without these fields of its Job, or with other values."""
    needed = {
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 2147483647,
        "podReplacementPolicy": "Failed",
    }
    made = job_set("a", failurePolicy={"maxRestarts": 3, "restartStrategy": "InPlaceRestart"})
    spec = {**JOB["spec"], **needed, **job}
    kept = {key: value for key, value in spec.items() if key not in dropped}
    made["spec"]["replicatedJobs"][0]["template"] = {"spec": kept}
    return made


def failing(*targets: str) -> Object:
    return {"rules": [{"action": "FailJobSet", "targetReplicatedJobs": list(targets)}]}


def failing_for(reason: str) -> Object:
    return {"action": "FailJobSet", "onJobFailureReasons": [reason]}


def with_rules(*names: str | None, action: str = "FailJobSet", replicas: int = 1) -> Object:
    rules = [{"action": action} if name is None else rule_named(name, action) for name in names]
    made = job_set("a", failurePolicy={"rules": rules})
    made["spec"]["replicatedJobs"][0]["replicas"] = replicas
    return made


def rule_named(name: str, action: str) -> Object:
    return {"name": name, "action": action}


JUDGED_BY_JOB_SET = [
    Refused("FTL245", "as JobSet's example", restarting_in_place()),
    Refused("FTL245", "no limit", restarting_in_place("backoffLimit"), "is not set"),
    Refused("FTL245", "a limit", restarting_in_place(backoffLimit=6), "is 6, which"),
    Refused("FTL245", "no policy", restarting_in_place("podReplacementPolicy"), "is not set"),
    Refused(
        "FTL245",
        "replaced too early",
        restarting_in_place(podReplacementPolicy="TerminatingOrFailed"),
        "is TerminatingOrFailed",
    ),
    Refused("FTL245", "more pods", restarting_in_place(completions=4), "is 4, parallelism 2"),
    Refused(
        "FTL245",
        "neither number",
        restarting_in_place("completions", "parallelism"),
        "is not set, parallelism not set",
    ),
    Refused(
        "FTL245",
        "a limit with another strategy",
        job_set("a", failurePolicy={"restartStrategy": "Recreate"}),
    ),
    Refused(
        "FTL232",
        "a Job of a JobSet that restarts always",
        put(job_set("a"), (f"spec/replicatedJobs/0/template/{IN_JOB}/restartPolicy", "Always")),
        "OnFailure or Never",
    ),
    Refused(
        "FTL232",
        "a Job of a JobSet that leaves it to the webhook",
        put(job_set("a"), (f"spec/replicatedJobs/0/template/{IN_JOB}/restartPolicy", GONE)),
    ),
    Refused(
        "FTL202",
        "a misspelt reason",
        job_set(
            "a", failurePolicy={"rules": [{"name": "r", **failing_for("BackoffLimitExceded")}]}
        ),
        "must be one of",
    ),
    Refused("FTL246", "a space in a rule's name", with_rules("1bad name"), "must be at most 128"),
    Refused("FTL246", "a rule's name that ends with a comma", with_rules("a,"), "must be at most"),
    Refused("FTL246", "a long name of a rule", with_rules("a" * 129), "must be at most 128"),
    Refused("FTL246", "the longest names of rules", with_rules("a" * 128, "b:c_d,e")),
    Refused("FTL246", "what is put in later", with_rules("${RULE}")),
    Refused(
        "FTL246", "two rules of one name", with_rules("a", "b", "a"), "'a' is the name of rules"
    ),
    Refused(
        "FTL246",
        "the name that the webhook gives to another rule",
        with_rules("failurePolicyRule1", None),
        "'failurePolicyRule1' is the name of rules",
    ),
    Refused("FTL246", "rules that the webhook names", with_rules(None, None)),
    Refused(
        "FTL246",
        "more replicas than restart alone",
        with_rules("a", action="RestartJob", replicas=1025),
        "is 1025, and rule 'a' has action: RestartJob, which allows 1024",
    ),
    Refused(
        "FTL246",
        "as many replicas as restart alone",
        with_rules("a", action="RestartJobAndIgnoreMaxRestarts", replicas=1024),
    ),
    Refused("FTL246", "more replicas that restart together", with_rules("a", replicas=1025)),
    Refused("FTL235", "two of one name", job_set("a", "a"), "another one already"),
    Refused("FTL235", "two names", job_set("a", "b")),
    Refused(
        "FTL235",
        "a policy for another",
        job_set("a", "b", failurePolicy=failing("a", "c")),
        "no replicated job 'c'",
    ),
    Refused("FTL235", "a policy for one", job_set("a", "b", failurePolicy=failing("a"))),
    Refused(
        "FTL235",
        "success of another",
        job_set("a", successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]}),
        "no replicated job 'b'",
    ),
    Refused(
        "FTL202",
        "an action of no release",
        job_set("a", failurePolicy={"rules": [{"name": "a", "action": "RestartJobs"}]}),
        "must be one of",
    ),
    Refused(
        "FTL202",
        "an action of release 0.12",
        job_set(
            "a",
            failurePolicy={
                "restartStrategy": "BlockingRecreate",
                "rules": [
                    {
                        "name": "a",
                        "action": "RestartJob",
                        "onJobFailureMessagePatterns": ["exit code 42"],
                    }
                ],
            },
        ),
    ),
]
"""What only JobSet's own webhook judges, which the suite on the control plane does not run:
kubernetes-sigs/jobset, pkg/webhooks/jobset_webhook.go."""


def groups(size: int, *, by: int | None = None, type: str | None = None, **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "w", "image": "x"}]}}
    worked: Object = {"size": size, "workerTemplate": template}
    if by is not None:
        worked["subGroupPolicy"] = {"subGroupSize": by, "subGroupPolicyType": type}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "g"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": worked, **spec},
    }


def rolling(**configuration: Any) -> Object:
    return groups(
        2,
        rolloutStrategy={
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": configuration,
        },
    )


BY_SUBGROUP = (
    "metadata/annotations",
    {"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": "rack"},
)
JUDGED_BY_LEADER_WORKER_SET = [
    Refused("FTL248", "not even a leader", groups(0), "must be at least 1, the leader"),
    Refused("FTL248", "a leader alone", groups(1)),
    Refused("FTL248", "subgroups that do not fit", groups(8, by=3), "must divide size, 8, or 7"),
    Refused("FTL248", "subgroups beside the leader", groups(7, by=3)),
    Refused("FTL248", "subgroups", groups(8, by=4)),
    Refused("FTL248", "larger subgroups", groups(4, by=8), "at least 1 and at most size, 4"),
    Refused("FTL248", "subgroups of none", groups(4, by=0), "at least 1 and at most size, 4"),
    Refused(
        "FTL248",
        "an excluded leader that is missing in a subgroup",
        groups(8, by=4, type="LeaderExcluded"),
        "must divide 7, the size without its leader",
    ),
    Refused("FTL248", "an excluded leader", groups(9, by=4, type="LeaderExcluded")),
    Refused("FTL248", "no way to roll", rolling(maxUnavailable=0), "not be 0 without maxSurge"),
    Refused("FTL248", "a surge", rolling(maxUnavailable=0, maxSurge="50%")),
    Refused("FTL248", "a rack for each of no subgroups", put(groups(4), BY_SUBGROUP), "needs sub"),
    Refused("FTL248", "a rack for each subgroup", put(groups(4, by=2), BY_SUBGROUP)),
]
"""The same of LeaderWorkerSet: kubernetes-sigs/lws, pkg/webhooks/leaderworkerset_webhook.go."""


def workers(least: int, most: int | None, kind: str = "RayCluster") -> Object:
    template = {"spec": {"containers": [{"name": "ray", "image": "x"}]}}
    worker = {"groupName": "w", "minReplicas": least, "maxReplicas": most, "template": template}
    cluster: Object = {"headGroupSpec": {"template": template}, "workerGroupSpecs": [worker]}
    spec = cluster if kind == "RayCluster" else {"rayClusterSpec": cluster}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "r"}, "spec": spec}


WARNED_OF = [
    Refused("FTL249", "more at least than at most", workers(4, 2), "more than maxReplicas, 2"),
    Refused("FTL249", "the same of a job", workers(4, 2, "RayJob"), "more than maxReplicas, 2"),
    Refused("FTL249", "as many", workers(2, 2)),
    Refused("FTL249", "no most", workers(4, None)),
]
"""What the API server stores and KubeRay's operator refuses: ray-project/kuberay,
ray-operator/controllers/ray/utils/validation.go."""
JUDGED = [*STRUCTURE, *RULES_OF_CLAIMS, *RULES_OF_PODS, *RULES_OF_JOBS, *RULES_OF_OBJECTS]


def policy(**spec: Any) -> Object:
    return {
        "apiVersion": "fettle.dev/v1alpha1",
        "kind": "DevicePolicy",
        "metadata": {"name": "p"},
        "spec": spec,
    }


def job_set_in_order(*, depends: bool) -> Object:
    made = job_set("a", "b", startupPolicy={"startupPolicyOrder": "InOrder"})
    if not depends:
        return made
    waits = [{"name": "a", "status": "Ready"}]
    return put(made, ("spec/replicatedJobs/1/dependsOn", waits))


def custom(api_version: str, kind: str, **spec: Any) -> Object:
    metadata = {"name": "custom", "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


LED, MASTER = "spec/leaderWorkerTemplate", "spec/pytorchReplicaSpecs/Master"
QUOTA = "spec/resourceGroups/0/flavors/0/resources/0"
LEADER_WORKERS = custom(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    leaderWorkerTemplate={"workerTemplate": DEPLOYMENT["spec"]["template"]},
)
RAY_CLUSTER = custom(
    "ray.io/v1",
    "RayCluster",
    headGroupSpec={"rayStartParams": {}, "template": DEPLOYMENT["spec"]["template"]},
    workerGroupSpecs=[
        {
            "groupName": "w",
            "minReplicas": 1,
            "maxReplicas": 1,
            "template": DEPLOYMENT["spec"]["template"],
        }
    ],
)
PYTORCH_JOB = custom(
    "kubeflow.org/v1",
    "PyTorchJob",
    pytorchReplicaSpecs={"Master": {"template": DEPLOYMENT["spec"]["template"]}},
)
QUEUE = custom(
    "kueue.x-k8s.io/v1beta1",
    "ClusterQueue",
    resourceGroups=[
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 9}]}],
        }
    ],
)
del QUEUE["metadata"]["namespace"]


def feature_rule(op: str = "Exists", **more: Any) -> Object:
    features = [{"feature": "pci.device", "matchExpressions": {"vendor": {"op": op}}}]
    rule = {"name": "r", "matchFeatures": features, **more}
    made = custom("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule", rules=[rule])
    del made["metadata"]["namespace"]
    return made


def train_job(**trainer: Any) -> Object:
    runtime = {"name": "torch-distributed"}
    kind = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    return custom(*kind, runtimeRef=runtime, trainer=trainer)


CUSTOM = [
    Refused("FTL201", "a weaker policy", policy(placement={"minscore": 0.9}), "mean minScore?"),
    Refused("FTL201", "a policy", policy(placement={"minScore": 0.9})),
    Refused("FTL201", "an unknown part", policy(tolerances={}), "mean tolerations?"),
    Refused("FTL201", "a misspelt target", job_set("a", sucessPolicy={}), "mean successPolicy?"),
    Refused("FTL201", "a JobSet", job_set("a", successPolicy={"operator": "All"})),
    Refused(
        "FTL202",
        "an action in small letters",
        job_set("a", failurePolicy={"rules": [{"name": "r", "action": "failjobset"}]}),
        "mean FailJobSet?",
    ),
    Refused(
        "FTL202",
        "an action",
        job_set("a", failurePolicy={"rules": [{"name": "r", "action": "FailJobSet"}]}),
    ),
    Refused(
        "FTL201",
        "a Job of a JobSet without its spec's name",
        put(job_set("a"), ("spec/replicatedJobs/0/template/specs", {})),
        "mean spec?",
    ),
    Refused("FTL201", "a misspelt size", put(LEADER_WORKERS, (f"{LED}/sizes", 2)), "mean size?"),
    Refused("FTL201", "a size", put(LEADER_WORKERS, (f"{LED}/size", 2))),
    Refused("FTL106", "a size in words", put(LEADER_WORKERS, (f"{LED}/size", "two")), "number"),
    Refused(
        "FTL201",
        "a misspelt bound",
        put(RAY_CLUSTER, ("spec/workerGroupSpecs/0/maxReplica", 2)),
        "mean maxReplicas?",
    ),
    Refused("FTL201", "workers", RAY_CLUSTER),
    Refused(
        "FTL201", "misspelt replicas", put(PYTORCH_JOB, (f"{MASTER}/replica", 1)), "mean replicas?"
    ),
    Refused("FTL201", "a master", PYTORCH_JOB),
    Refused("FTL201", "misspelt nodes", train_job(numNode=2), "mean numNodes?"),
    Refused("FTL201", "nodes", train_job(numNodes=2)),
    Refused(
        "FTL201",
        "a misspelt quota",
        put(QUEUE, (f"{QUOTA}/nominalQuotas", 9)),
        "mean nominalQuota?",
    ),
    Refused("FTL201", "a queue", QUEUE),
    Refused(
        "FTL201",
        "a rule without its features",
        feature_rule(matchFeature=[]),
        "mean matchFeatures?",
    ),
    Refused("FTL202", "an operator in small letters", feature_rule("exists"), "mean Exists?"),
    Refused("FTL202", "an operator", feature_rule("Exists")),
    Refused(
        "FTL202",
        "a word in small letters",
        put(QUEUE, ("spec/preemption", {"reclaimWithinCohort": "any"})),
        "mean Any?",
    ),
]
"""What definitions of custom resources judge."""
STATED = [
    Refused("FTL290", "borrows from nobody", put(QUEUE, (f"{QUOTA}/borrowingLimit", 1)), "cohort"),
    Refused(
        "FTL290",
        "borrows from a cohort",
        put(QUEUE, (f"{QUOTA}/borrowingLimit", 1), ("spec/cohort", "all")),
    ),
    Refused(
        "FTL290",
        "covers what no flavor has",
        put(QUEUE, ("spec/resourceGroups/0/coveredResources", ["cpu", "memory"])),
        "same number",
    ),
    Refused(
        "FTL290",
        "waits for a job that has no order",
        job_set_in_order(depends=True),
        "StartupPolicy and DependsOn",
    ),
    Refused("FTL290", "an order", job_set_in_order(depends=False)),
]
"""What rules of definitions (`x-kubernetes-validations`) judge."""
