"""More of what the API server refuses, one mistake a row, and near misses: what has the wrong form,
stands twice, is too long, or does not fit another field."""

from typing import Any

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.tables.refused import (
    BOX,
    CLAIM,
    CRON,
    DEPLOYMENT,
    GONE,
    JOB,
    POD,
    REQUEST,
    TEMPLATE,
    Refused,
    on_exit,
    put,
)

STATEFUL: Object = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "s", "namespace": "default"},
    "spec": {
        "serviceName": "s",
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "template": DEPLOYMENT["spec"]["template"],
    },
}
DAEMON: Object = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "s", "namespace": "default"},
    "spec": {key: STATEFUL["spec"][key] for key in ("selector", "template")},
}
CLASS = api.device_class()
TAINT_RULE = api.device_taint_rule("r", "a.example.com/k", driver="gpu.nvidia.com")
SLICE = api.resource_slice("n", 2, name="s")
INDEXED = put(JOB, ("spec/completionMode", "Indexed"))
IN_TEMPLATE = "spec/template/spec"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PAGES = {"hugepages-2Mi": "4Mi", "memory": "1Gi"}
STORED = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def volume(**source: Any) -> Object:
    return put(POD, ("spec/volumes", [{"name": "v", **source}]))


def mount(entry: Object) -> Object:
    volumes = [{"name": "v", "emptyDir": {}}]
    return put(POD, ("spec/volumes", volumes), (f"{BOX}/volumeMounts", [entry]))


def toleration(**fields: Any) -> Object:
    return put(POD, ("spec/tolerations", [fields]))


def affinity(fields: Object) -> Object:
    return put(POD, ("spec/affinity", fields))


def of_nodes(term: Object) -> Object:
    return affinity({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}})


def spread(**fields: Any) -> Object:
    usual = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return put(POD, ("spec/topologySpreadConstraints", [{**usual, **fields}]))


def probe(**fields: Any) -> Object:
    return put(POD, (f"{BOX}/livenessProbe", {"httpGet": {"port": 80}, **fields}))


def claiming(*templates: Object) -> Object:
    return put(STATEFUL, ("spec/volumeClaimTemplates", list(templates)))


DETAILS = [
    Refused(
        "FTL202",
        "StatefulSet updateStrategy",
        put(STATEFUL, ("spec/updateStrategy", {"type": "Recreate"})),
        'RollingUpdate, and is "Recreate"',
    ),
    Refused(
        "FTL202",
        "StatefulSet retention",
        put(
            STATEFUL,
            (
                "spec/persistentVolumeClaimRetentionPolicy",
                {"whenDeleted": "delete", "whenScaled": "Retain"},
            ),
        ),
        'of Delete, Retain, and is "delete"',
    ),
    Refused("FTL203", "secret no name", volume(secret={}), "is required"),
    Refused("FTL203", "ephemeral no spec", volume(ephemeral={}), "is required"),
    Refused("FTL203", "image vol policy", volume(image={}), "is required"),
    Refused(
        "FTL203",
        "env configmapkey no name",
        put(POD, (f"{BOX}/env", [{"name": "A", "valueFrom": {"configMapKeyRef": {"key": "a"}}}])),
        "is required",
    ),
    Refused(
        "FTL203",
        "envFrom noname",
        put(POD, (f"{BOX}/envFrom", [{"configMapRef": {}}])),
        "is required",
    ),
    Refused(
        "FTL204",
        "subPath and Expr",
        mount({"name": "v", "mountPath": "/a", "subPath": "x", "subPathExpr": "y"}),
        "and subPathExpr exclude each other",
    ),
    Refused(
        "FTL217",
        "slice two nodes",
        put(SLICE, ("spec/allNodes", True)),
        "and allNodes exclude each other",
    ),
    Refused(
        "FTL217",
        "slice no node",
        put(SLICE, ("spec/nodeName", GONE)),
        "allNodes, perDeviceNodeSelection",
    ),
    Refused(
        "FTL217",
        "slice allNodes false",
        put(SLICE, ("spec/nodeName", GONE), ("spec/allNodes", False)),
        "be left out or have another value",
    ),
    Refused(
        "FTL217",
        "slice 33 attributes",
        put(SLICE, ("spec/devices/0/attributes", {f"a{i}": {"int": 1} for i in range(33)})),
        "has 34 attributes and capacities",
    ),
    Refused(
        "FTL217",
        "slice device nodeName without per",
        put(SLICE, ("spec/devices/0/nodeName", "n")),
        "true in the spec",
    ),
    Refused(
        "FTL217",
        "slice counters+devices",
        put(SLICE, ("spec/sharedCounters", [{"name": "s", "counters": {"m": {"value": "1"}}}])),
        "and devices exclude each other",
    ),
    Refused(
        "FTL217",
        "slice requestPolicy without multi",
        put(SLICE, ("spec/devices/0/capacity/memory/requestPolicy", {"default": "1Gi"})),
        "needs allowMultipleAllocations: true",
    ),
    Refused(
        "FTL217",
        "slice binding no failure",
        put(SLICE, ("spec/devices/0/bindingConditions", ["a"])),
        "required beside the other conditions",
    ),
    Refused(
        "FTL218",
        "claim selector too long",
        put(
            CLAIM, (f"{REQUEST}/exactly/selectors", [{"cel": {"expression": "true" + " " * 10300}}])
        ),
        "is longer than 10240 bytes",
    ),
    Refused(
        "FTL220",
        "claims in init with request unknown",
        put(
            POD,
            ("spec/resourceClaims", [{"name": "a", "resourceClaimName": "a"}]),
            (f"{BOX}/resources", {"claims": [{"name": "a"}, {"name": "a", "request": "x"}]}),
        ),
        "a is used already",
    ),
    Refused(
        "FTL221",
        "volumeDevices unknown",
        put(POD, (f"{BOX}/volumeDevices", [{"name": "v", "devicePath": "/a"}])),
        "the pod's volumes have no 'v'",
    ),
    Refused(
        "FTL222",
        "resources requests.gpu",
        put(POD, (f"{BOX}/resources", {"limits": {"requests.nvidia.com/gpu": 1}})),
        "is how quotas name it",
    ),
    Refused(
        "FTL222",
        "resources name that is none",
        put(POD, (f"{BOX}/resources", {"limits": {"nvidia.com/gpu h100": 1}})),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL222",
        "resources upper domain",
        put(POD, (f"{BOX}/resources", {"limits": {"NVIDIA.com/gpu": 1}})),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL226",
        "port names twice",
        put(
            POD,
            (
                f"{BOX}/ports",
                [{"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 81}],
            ),
        ),
        "a is the name of another port already",
    ),
    Refused(
        "FTL226",
        "hostPort twice",
        put(
            POD,
            (
                f"{BOX}/ports",
                [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}],
            ),
        ),
        "host that another one takes already",
    ),
    Refused(
        "FTL226",
        "hostNetwork hostPort mismatch",
        put(
            POD,
            ("spec/hostNetwork", True),
            (f"{BOX}/ports", [{"containerPort": 80, "hostPort": 81}]),
        ),
        "containerPort with hostNetwork: true",
    ),
    Refused("FTL226", "liveness successThreshold 2", probe(successThreshold=2), "must be 1"),
    Refused(
        "FTL226",
        "readiness grace",
        put(
            POD,
            (
                f"{BOX}/readinessProbe",
                {"httpGet": {"port": 80}, "terminationGracePeriodSeconds": 1},
            ),
        ),
        "may not be set for a readinessProbe",
    ),
    Refused(
        "FTL226",
        "init liveness",
        put(
            POD,
            (
                "spec/initContainers",
                [{"name": "i", "image": "i", "livenessProbe": {"httpGet": {"port": 80}}}],
            ),
        ),
        "it only with restartPolicy: Always",
    ),
    Refused(
        "FTL226",
        "init lifecycle",
        put(
            POD,
            (
                "spec/initContainers",
                [
                    {
                        "name": "i",
                        "image": "i",
                        "lifecycle": {"preStop": {"exec": {"command": ["a"]}}},
                    }
                ],
            ),
        ),
        "it only with restartPolicy: Always",
    ),
    Refused(
        "FTL227",
        "mountPropagation bidir unprivileged",
        mount({"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}),
        "Bidirectional needs privileged: true",
    ),
    Refused(
        "FTL227",
        "recursiveReadOnly without readOnly",
        mount({"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled"}),
        "needs readOnly: true",
    ),
    Refused(
        "FTL227",
        "volumeDevices + mounts",
        put(
            POD,
            ("spec/volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
            (f"{BOX}/volumeDevices", [{"name": "v", "devicePath": "/a"}]),
            (f"{BOX}/volumeMounts", [{"name": "v", "mountPath": "/b"}]),
        ),
        "v is among volumeMounts already",
    ),
    Refused(
        "FTL227",
        "volumeDevice emptyDir",
        put(
            POD,
            ("spec/volumes", [{"name": "v", "emptyDir": {}}]),
            (f"{BOX}/volumeDevices", [{"name": "v", "devicePath": "/a"}]),
        ),
        "v is no persistentVolumeClaim",
    ),
    Refused(
        "FTL228",
        "lifecycle sleep long",
        put(
            POD,
            ("spec/terminationGracePeriodSeconds", 10),
            (f"{BOX}/lifecycle", {"preStop": {"sleep": {"seconds": 20}}}),
        ),
        "terminationGracePeriodSeconds, 10",
    ),
    Refused(
        "FTL228",
        "rules without policy",
        put(
            POD,
            (
                f"{BOX}/restartPolicyRules",
                [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
            ),
        ),
        "is required with restartPolicyRules",
    ),
    Refused(
        "FTL228",
        "rules no exitcodes",
        put(
            POD,
            (f"{BOX}/restartPolicy", "Never"),
            (f"{BOX}/restartPolicyRules", [{"action": "Restart"}]),
        ),
        "is required",
    ),
    Refused(
        "FTL228",
        "priv + noescalation",
        put(
            POD, (f"{BOX}/securityContext", {"privileged": True, "allowPrivilegeEscalation": False})
        ),
        "not be false with privileged: true",
    ),
    Refused(
        "FTL228",
        "seccomp localhost no profile",
        put(POD, ("spec/securityContext", {"seccompProfile": {"type": "Localhost"}})),
        "is required with type: Localhost",
    ),
    Refused(
        "FTL228",
        "seccomp profile with default",
        put(
            POD,
            (
                "spec/securityContext",
                {"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}},
            ),
        ),
        "needs type: Localhost",
    ),
    Refused(
        "FTL228",
        "hostUsers hostnetwork",
        put(POD, ("spec/hostUsers", False), ("spec/hostNetwork", True)),
        "may not be true with hostUsers: false",
    ),
    Refused(
        "FTL228",
        "shareProcess hostPID",
        put(POD, ("spec/shareProcessNamespace", True), ("spec/hostPID", True)),
        "and hostPID exclude each other",
    ),
    Refused(
        "FTL228",
        "dnsPolicy None without config",
        put(POD, ("spec/dnsPolicy", "None")),
        "nameservers with dnsPolicy: None",
    ),
    Refused(
        "FTL228",
        "gates+nodeName",
        put(POD, ("spec/schedulingGates", [{"name": "a"}]), ("spec/nodeName", "n")),
        "may not be set with schedulingGates",
    ),
    Refused(
        "FTL228",
        "os windows hostPID",
        put(POD, ("spec/os", {"name": "windows"}), ("spec/hostPID", True)),
        "may not be set for a windows pod",
    ),
    Refused(
        "FTL228",
        "overhead",
        put(POD, ("spec/overhead", {"cpu": "1"})),
        "a runtimeClassName that says the same",
    ),
    Refused(
        "FTL228",
        "toleration value that is none",
        toleration(key="a", value="b c"),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL228",
        "toleration Gt not a number",
        toleration(key="a", operator="Gt", value="b", effect="NoSchedule"),
        "must be a whole number with Gt",
    ),
    Refused(
        "FTL228",
        "node affinity value that is none",
        affinity(
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {
                                        "key": "nvidia.com/gpu.product",
                                        "operator": "In",
                                        "values": ["NVIDIA H100"],
                                    }
                                ]
                            }
                        ]
                    }
                }
            }
        ),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL228",
        "node affinity matchFields key",
        affinity(
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "a", "operator": "In", "values": ["b"]}]}
                        ]
                    }
                }
            }
        ),
        "must be metadata.name in matchFields",
    ),
    Refused(
        "FTL228",
        "node affinity matchFields of two",
        affinity(
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["b", "c"]}
                                ]
                            }
                        ]
                    }
                }
            }
        ),
        "must be one in matchFields",
    ),
    Refused(
        "FTL228",
        "pod affinity matchLabelKeys without selector",
        affinity({"podAntiAffinity": {REQUIRED: [{"topologyKey": "a", "matchLabelKeys": ["x"]}]}}),
        "needs a labelSelector",
    ),
    Refused(
        "FTL228",
        "spread minDomains ScheduleAnyway",
        spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
        "whenUnsatisfiable: DoNotSchedule",
    ),
    Refused(
        "FTL228", "spread matchLabelKeys", spread(matchLabelKeys=["x"]), "needs a labelSelector"
    ),
    Refused(
        "FTL228",
        "pod-level resources extended",
        put(POD, ("spec/resources", {"limits": {"nvidia.com/gpu": 1}})),
        "for a whole pod, only for containers",
    ),
    Refused(
        "FTL228",
        "pod-level claims",
        put(POD, ("spec/resources", {"claims": [{"name": "a"}]})),
        "only containers may use claims",
    ),
    Refused(
        "FTL228",
        "ephemeral containers",
        put(POD, ("spec/ephemeralContainers", [{"name": "e", "image": "i"}])),
        "can only be added to a pod that runs",
    ),
    Refused(
        "FTL228",
        "Deployment ephemeral",
        put(DEPLOYMENT, (f"{IN_TEMPLATE}/ephemeralContainers", [{"name": "e", "image": "i"}])),
        "can only be added to a pod that runs",
    ),
    Refused(
        "FTL229",
        "hugepages no mem",
        put(
            POD,
            (
                f"{BOX}/resources",
                {"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "4Mi"}},
            ),
        ),
        "needs memory or cpu beside it",
    ),
    Refused(
        "FTL229",
        "hugepages not multiple",
        put(POD, (f"{BOX}/resources", {"limits": {"hugepages-2Mi": "3Mi", "memory": "1Gi"}})),
        "3Mi are no whole hugepages-2Mi",
    ),
    Refused(
        "FTL236",
        "job successPolicy count > completions",
        put(INDEXED, ("spec/successPolicy", {"rules": [{"succeededCount": 5}]})),
        "is more than there are, 1",
    ),
    Refused(
        "FTL236",
        "job successPolicy nothing",
        put(INDEXED, ("spec/successPolicy", {"rules": [{}]})),
        "succeededCount and succeededIndexes",
    ),
    Refused(
        "FTL236",
        "job successPolicy indexes range",
        put(INDEXED, ("spec/successPolicy", {"rules": [{"succeededIndexes": "0-5"}]})),
        "must be indexes below 1 in order",
    ),
    Refused(
        "FTL236",
        "job successPolicy indexes that is none",
        put(INDEXED, ("spec/successPolicy", {"rules": [{"succeededIndexes": "a"}]})),
        "must be indexes below 1 in order",
    ),
    Refused(
        "FTL236",
        "job successPolicy count>indexes",
        put(
            INDEXED,
            ("spec/completions", 5),
            ("spec/successPolicy", {"rules": [{"succeededIndexes": "0-1", "succeededCount": 3}]}),
        ),
        "is more than there are, 2",
    ),
    Refused(
        "FTL237",
        "cron time zone that is none",
        put(CRON, ("spec/timeZone", "Mars/Base")),
        "'Mars/Base' is no time zone",
    ),
    Refused(
        "FTL237", "cron time zone empty", put(CRON, ("spec/timeZone", "")), "'' is no time zone"
    ),
    Refused(
        "FTL237",
        "cron time zone Local",
        put(CRON, ("spec/timeZone", "Local")),
        "'Local' is no time zone",
    ),
    Refused(
        "FTL237",
        "cron schedule value that is none",
        put(CRON, ("spec/schedule", "99 * * * *")),
        "'99' is no minute",
    ),
    Refused(
        "FTL237",
        "cron schedule word that is none",
        put(CRON, ("spec/schedule", "@often")),
        "'@often' is no schedule",
    ),
    Refused(
        "FTL238",
        "job selector",
        put(JOB, ("spec/selector", {"matchLabels": {"a": "b"}})),
        "is made by the API server",
    ),
    Refused(
        "FTL238",
        "job manualSelector none",
        put(JOB, ("spec/manualSelector", True)),
        "is required with manualSelector: true",
    ),
    Refused(
        "FTL238",
        "job indexed parallelism>100000",
        put(INDEXED, ("spec/parallelism", 200000), ("spec/completions", 200000)),
        "must be at most 100000 in such a Job",
    ),
    Refused(
        "FTL238",
        "job backoffPerIndex completions 200k",
        put(INDEXED, ("spec/backoffLimitPerIndex", 1), ("spec/completions", 200000)),
        "with more than 100000 completions",
    ),
    Refused(
        "FTL238",
        "job template labels reserved",
        put(JOB, ("spec/template/metadata/labels", {"job-name": "x"})),
        "must be the name of the Job, j",
    ),
    Refused(
        "FTL238",
        "job indexed long name",
        put(INDEXED, ("metadata/name", "a" * 63)),
        "it is longer than 63 characters",
    ),
    Refused(
        "FTL238",
        "job name long",
        put(JOB, ("metadata/name", "a" * 64)),
        "is longer than 63 characters",
    ),
    Refused(
        "FTL238",
        "job name dots",
        put(JOB, ("metadata/name", "a.b." + "c" * 70)),
        "is longer than 63 characters",
    ),
    Refused(
        "FTL238",
        "cron manualselector",
        put(CRON, ("spec/jobTemplate/spec/manualSelector", True)),
        "may not be set in a CronJob",
    ),
    Refused(
        "FTL241",
        "annotation huge",
        put(POD, ("metadata/annotations", {"a": "x" * 270000})),
        "have 270001 bytes",
    ),
    Refused(
        "FTL241",
        "finalizer that is none",
        put(POD, ("metadata/finalizers", ["a b"])),
        "'a b' has no domain",
    ),
    Refused(
        "FTL241",
        "template metadata label that is none",
        put(TEMPLATE, ("spec/metadata/labels", {"a": "b c"})),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL241",
        "template metadata annotation key that is none",
        put(TEMPLATE, ("spec/metadata/annotations", {"a b": "b c"})),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "subPath ..",
        mount({"name": "v", "mountPath": "/a", "subPath": "../x"}),
        "'../x' must not contain '..'",
    ),
    Refused(
        "FTL242",
        "subPath from the root",
        mount({"name": "v", "mountPath": "/a", "subPath": "/x"}),
        "'/x' must be a relative path",
    ),
    Refused(
        "FTL242",
        "hostPath ..",
        volume(hostPath={"path": "/a/../b"}),
        "'/a/../b' must not contain '..'",
    ),
    Refused(
        "FTL242",
        "configMap mode",
        volume(configMap={"name": "a", "defaultMode": 755}),
        "must be 0 to 0777 as an octal number",
    ),
    Refused(
        "FTL242",
        "configMap mode 0o1000",
        volume(configMap={"name": "a", "defaultMode": 1000}),
        "must be 0 to 0777 as an octal number",
    ),
    Refused(
        "FTL242",
        "configMap item path from the root",
        volume(configMap={"name": "a", "items": [{"key": "k", "path": "/p"}]}),
        "'/p' must be a relative path",
    ),
    Refused(
        "FTL242",
        "emptyDir negative",
        volume(emptyDir={"sizeLimit": "-1Gi"}),
        "'-1Gi' must not be less than 0",
    ),
    Refused(
        "FTL242",
        "downwardAPI fieldpath that is none",
        volume(downwardAPI={"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.label"}}]}),
        "is no field that a container may read",
    ),
    Refused(
        "FTL242",
        "nfs relative",
        volume(nfs={"server": "a", "path": "b"}),
        "'b' must be an absolute path",
    ),
    Refused(
        "FTL242",
        "env name invalid",
        put(POD, (f"{BOX}/env", [{"name": "A=B", "value": "x"}])),
        "ASCII characters but '=' only",
    ),
    Refused(
        "FTL242",
        "env fieldpath",
        put(
            POD,
            (
                f"{BOX}/env",
                [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.nam"}}}],
            ),
        ),
        "is no field that a container may read",
    ),
    Refused(
        "FTL242",
        "env fieldpath spec.node",
        put(
            POD,
            (f"{BOX}/env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.node"}}}]),
        ),
        "is no field that a container may read",
    ),
    Refused(
        "FTL242",
        "env annotations without a key",
        put(
            POD,
            (
                f"{BOX}/env",
                [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations"}}}],
            ),
        ),
        "is no field that a container may read",
    ),
    Refused(
        "FTL242",
        "env resourceField",
        put(
            POD,
            (
                f"{BOX}/env",
                [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}}],
            ),
        ),
        "requests.memory",
    ),
    Refused(
        "FTL242",
        "env resourceField extended",
        put(
            POD,
            (
                f"{BOX}/env",
                [
                    {
                        "name": "A",
                        "valueFrom": {"resourceFieldRef": {"resource": "limits.nvidia.com/gpu"}},
                    }
                ],
            ),
        ),
        "requests.memory",
    ),
    Refused(
        "FTL242",
        "env secretkey badkey",
        put(
            POD,
            (
                f"{BOX}/env",
                [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "a b"}}}],
            ),
        ),
        "digits, '-', '_' and '.' only",
    ),
    Refused(
        "FTL242",
        "port name long",
        put(POD, (f"{BOX}/ports", [{"name": "a-very-long-port-name", "containerPort": 80}])),
        "is longer than 15 characters",
    ),
    Refused(
        "FTL242",
        "port name digits",
        put(POD, (f"{BOX}/ports", [{"name": "8080", "containerPort": 80}])),
        "'8080' needs a letter",
    ),
    Refused(
        "FTL242",
        "probe grace 0",
        probe(terminationGracePeriodSeconds=0),
        "must be 1 to 9223372036854775807",
    ),
    Refused(
        "FTL242",
        "activeDeadline 0",
        put(POD, ("spec/activeDeadlineSeconds", 0)),
        "must be 1 to 2147483647",
    ),
    Refused(
        "FTL242",
        "image blanks",
        put(POD, (f"{BOX}/image", " nginx")),
        "must not begin or end with blanks",
    ),
    Refused(
        "FTL242",
        "image trailing",
        put(POD, (f"{BOX}/image", "nginx ")),
        "' must not begin or end with blanks",
    ),
    Refused(
        "FTL242",
        "runAsUser negative",
        put(POD, (f"{BOX}/securityContext", {"runAsUser": -1})),
        "must be 0 to 2147483647",
    ),
    Refused(
        "FTL242",
        "pod runAsUser negative",
        put(POD, ("spec/securityContext", {"runAsUser": -5})),
        "must be 0 to 2147483647",
    ),
    Refused(
        "FTL242",
        "fsGroup negative",
        put(POD, ("spec/securityContext", {"fsGroup": -5})),
        "must be 0 to 2147483647",
    ),
    Refused(
        "FTL242",
        "sysctl that is none",
        put(POD, ("spec/securityContext", {"sysctls": [{"name": "A b", "value": "1"}]})),
        "'A b' is no name of a sysctl",
    ),
    Refused(
        "FTL242",
        "dns nameserver that is none",
        put(POD, ("spec/dnsConfig", {"nameservers": ["a.b"]})),
        "'a.b' is no IP address",
    ),
    Refused(
        "FTL242",
        "hostAliases ip",
        put(POD, ("spec/hostAliases", [{"ip": "a", "hostnames": ["b"]}])),
        "'a' is no IP address",
    ),
    Refused(
        "FTL242",
        "hostname upper",
        put(POD, ("spec/hostname", "A_b")),
        "digits and inner hyphens only",
    ),
    Refused(
        "FTL242",
        "subdomain that is none",
        put(POD, ("spec/subdomain", "A_b")),
        "digits and inner hyphens only",
    ),
    Refused(
        "FTL242",
        "service account that is none",
        put(POD, ("spec/serviceAccountName", "A_b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "nodeName that is none",
        put(POD, ("spec/nodeName", "A_b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "priorityClass that is none",
        put(POD, ("spec/priorityClassName", "A_b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "runtimeClass that is none",
        put(POD, ("spec/runtimeClassName", "A_b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "schedulingGates that is none",
        put(POD, ("spec/schedulingGates", [{"name": "a b"}])),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "readinessGates that is none",
        put(POD, ("spec/readinessGates", [{"conditionType": "a b"}])),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "toleration key that is none",
        toleration(key="a b", operator="Exists"),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "node affinity key that is none",
        affinity(
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}
                        ]
                    }
                }
            }
        ),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "pod affinity topologyKey that is none",
        affinity({"podAffinity": {REQUIRED: [{"labelSelector": {}, "topologyKey": "a b"}]}}),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "pod affinity namespace that is none",
        affinity(
            {
                "podAffinity": {
                    REQUIRED: [{"labelSelector": {}, "topologyKey": "a", "namespaces": ["A_b"]}]
                }
            }
        ),
        "digits and inner hyphens only",
    ),
    Refused(
        "FTL242",
        "pod affinity label that is none",
        affinity(
            {
                "podAntiAffinity": {
                    REQUIRED: [{"labelSelector": {"matchLabels": {"a": "b c"}}, "topologyKey": "a"}]
                }
            }
        ),
        "hyphens, dots and underscores only",
    ),
    Refused("FTL242", "spread minDomains 0", spread(minDomains=0), "must be 1 to 2147483647"),
    Refused(
        "FTL242",
        "spread labelSelector that is none",
        spread(labelSelector={"matchLabels": {"a": "b c"}}),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "claim request name that is none",
        put(
            POD,
            ("spec/resourceClaims", [{"name": "a", "resourceClaimName": "a"}]),
            (f"{BOX}/resources", {"claims": [{"name": "a", "request": "X_y"}]}),
        ),
        "digits and inner hyphens only",
    ),
    Refused(
        "FTL242",
        "job condition type that is none",
        put(
            JOB,
            (
                "spec/podFailurePolicy",
                {
                    "rules": [
                        {"action": "Ignore", "onPodConditions": [{"type": "Disruption Target"}]}
                    ]
                },
            ),
        ),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "job managedBy that is none",
        put(JOB, ("spec/managedBy", "a b")),
        "'a b' must be a domain and a path",
    ),
    Refused(
        "FTL242",
        "job managedBy no domain",
        put(JOB, ("spec/managedBy", "kueue")),
        "'kueue' must be a domain and a path",
    ),
    Refused(
        "FTL242",
        "Deployment surge without a sign",
        put(DEPLOYMENT, ("spec/strategy", {"rollingUpdate": {"maxSurge": "25"}})),
        "'25' is no percentage",
    ),
    Refused(
        "FTL242",
        "Deployment surge with a space before its sign",
        put(DEPLOYMENT, ("spec/strategy", {"rollingUpdate": {"maxSurge": "25 %"}})),
        "'25 %' is no percentage",
    ),
    Refused(
        "FTL242",
        "Deployment unavailable 150%",
        put(DEPLOYMENT, ("spec/strategy", {"rollingUpdate": {"maxUnavailable": "150%"}})),
        "'150%' is more than 100%",
    ),
    Refused(
        "FTL242",
        "Deployment surge negative",
        put(DEPLOYMENT, ("spec/strategy", {"rollingUpdate": {"maxSurge": -1}})),
        "must be at least 0",
    ),
    Refused(
        "FTL242",
        "StatefulSet partition negative",
        put(STATEFUL, ("spec/updateStrategy", {"rollingUpdate": {"partition": -1}})),
        "must be 0 to 2147483647",
    ),
    Refused(
        "FTL242",
        "StatefulSet ordinals negative",
        put(STATEFUL, ("spec/ordinals", {"start": -1})),
        "must be 0 to 2147483647",
    ),
    Refused(
        "FTL242",
        "StatefulSet serviceName that is none",
        put(STATEFUL, ("spec/serviceName", "A_b")),
        "digits and inner hyphens only",
    ),
    Refused(
        "FTL242",
        "claim constraint attribute identifier that is none",
        put(CLAIM, ("spec/devices/constraints", [{"matchAttribute": "a.com/b-c"}])),
        "than letters, digits and underscores",
    ),
    Refused(
        "FTL242",
        "claim config driver upper",
        put(CLAIM, ("spec/devices/config", [{"opaque": {"driver": "Gpu_x", "parameters": {}}}])),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "claim config params str",
        put(CLAIM, ("spec/devices/config", [{"opaque": {"driver": "a.com", "parameters": "x"}}])),
        "'x' must be an object",
    ),
    Refused(
        "FTL242",
        "claim config params list",
        put(CLAIM, ("spec/devices/config", [{"opaque": {"driver": "a.com", "parameters": [1]}}])),
        "must be an object",
    ),
    Refused(
        "FTL242",
        "claim toleration key that is none",
        put(CLAIM, (f"{REQUEST}/exactly/tolerations", [{"key": "a b", "operator": "Exists"}])),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "claim toleration value that is none",
        put(CLAIM, (f"{REQUEST}/exactly/tolerations", [{"key": "a", "value": "b c"}])),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "class extended name",
        put(CLASS, ("spec/extendedResourceName", "gpu")),
        "is no name of an extended resource",
    ),
    Refused(
        "FTL242",
        "class extended requests.",
        put(CLASS, ("spec/extendedResourceName", "requests.a.com/gpu")),
        "is no name of an extended resource",
    ),
    Refused(
        "FTL242",
        "class extended kubernetes.io",
        put(CLASS, ("spec/extendedResourceName", "kubernetes.io/gpu")),
        "is no name of an extended resource",
    ),
    Refused(
        "FTL242",
        "rule key that is none",
        put(TAINT_RULE, ("spec/taint/key", "a b")),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "rule value that is none",
        put(TAINT_RULE, ("spec/taint/value", "a b")),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "rule driver that is none",
        put(TAINT_RULE, ("spec/deviceSelector/driver", "A_b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "rule pool that is none",
        put(TAINT_RULE, ("spec/deviceSelector/pool", "A b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "rule device that is none",
        put(TAINT_RULE, ("spec/deviceSelector/device", "A_b")),
        "digits and inner hyphens only",
    ),
    Refused(
        "FTL242",
        "slice driver that is none",
        put(SLICE, ("spec/driver", "A_b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "slice pool name",
        put(SLICE, ("spec/pool/name", "A b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL242",
        "slice count 0",
        put(SLICE, ("spec/pool/resourceSliceCount", 0)),
        "must be 1 to 9223372036854775807",
    ),
    Refused(
        "FTL242",
        "slice generation -1",
        put(SLICE, ("spec/pool/generation", -1)),
        "must be 0 to 9223372036854775807",
    ),
    Refused(
        "FTL242",
        "slice attribute version",
        put(SLICE, ("spec/devices/0/attributes/index", {"version": "1.0"})),
        "'1.0' is no version such as 1.2.3",
    ),
    Refused(
        "FTL242",
        "slice attribute long",
        put(SLICE, ("spec/devices/0/attributes/index", {"string": "a" * 65})),
        "is longer than 64 characters",
    ),
    Refused(
        "FTL242",
        "slice attribute name that is none",
        put(SLICE, ("spec/devices/0/attributes/in-dex", {"int": 1})),
        "than letters, digits and underscores",
    ),
    Refused(
        "FTL242",
        "slice taint key that is none",
        put(SLICE, ("spec/devices/0/taints", [{"key": "a b", "effect": "NoSchedule"}])),
        "hyphens, dots and underscores only",
    ),
    Refused(
        "FTL242",
        "slice nodeName that is none",
        put(SLICE, ("spec/nodeName", "A_b")),
        "and inner hyphens and dots only",
    ),
    Refused(
        "FTL243",
        "schedulingGates twice",
        put(POD, ("spec/schedulingGates", [{"name": "a"}, {"name": "a"}])),
        "a is there already",
    ),
    Refused(
        "FTL243",
        "spread twice",
        put(
            POD,
            (
                "spec/topologySpreadConstraints",
                [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}] * 2,
            ),
        ),
        "zone DoNotSchedule is there already",
    ),
    Refused(
        "FTL243",
        "resizePolicy twice",
        put(
            POD,
            (f"{BOX}/resizePolicy", [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2),
        ),
        "cpu is there already",
    ),
    Refused(
        "FTL243",
        "claim constraint requests twice",
        put(
            CLAIM,
            (
                "spec/devices/constraints",
                [{"requests": ["gpu", "gpu"], "matchAttribute": "a.com/b"}],
            ),
        ),
        "gpu is there already",
    ),
    Refused(
        "FTL243",
        "claim config requests twice",
        put(
            CLAIM,
            (
                "spec/devices/config",
                [{"requests": ["gpu", "gpu"], "opaque": {"driver": "a.com", "parameters": {}}}],
            ),
        ),
        "gpu is there already",
    ),
    Refused(
        "FTL243",
        "slice device twice",
        put(SLICE, ("spec/devices/1/name", "gpu-0")),
        "gpu-0 is there already",
    ),
    Refused(
        "FTL244",
        "four nameservers",
        put(POD, ("spec/dnsConfig", {"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]})),
        "has 4 entries",
    ),
    Refused(
        "FTL244",
        "job rules >20",
        put(
            JOB, ("spec/podFailurePolicy", {"rules": [on_exit(values=[i + 1]) for i in range(21)]})
        ),
        "has 21 entries",
    ),
    Refused(
        "FTL244",
        "job condition 21",
        put(
            JOB,
            (
                "spec/podFailurePolicy",
                {
                    "rules": [
                        {
                            "action": "Ignore",
                            "onPodConditions": [{"type": f"D{i}"} for i in range(21)],
                        }
                    ]
                },
            ),
        ),
        "has 21 entries",
    ),
    Refused(
        "FTL244",
        "slice 129 devices",
        put(SLICE, ("spec/devices", [{"name": f"d{i}"} for i in range(129)])),
        "has 129 entries",
    ),
    Refused(
        "FTL244",
        "slice taints 17",
        put(
            SLICE,
            (
                "spec/devices/0/taints",
                [{"key": f"a{i}", "effect": "NoSchedule"} for i in range(17)],
            ),
        ),
        "has 17 entries",
    ),
    Refused(
        "FTL250",
        "Deployment selector expr mismatch",
        put(
            DEPLOYMENT,
            (
                "spec/selector",
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]},
            ),
        ),
        "not select the labels of the template",
    ),
    Refused(
        "FTL253",
        "StatefulSet OnDelete rolling",
        put(
            STATEFUL,
            ("spec/updateStrategy", {"type": "OnDelete", "rollingUpdate": {"partition": 1}}),
        ),
        "may not be there with type: OnDelete",
    ),
    Refused(
        "FTL253",
        "StatefulSet maxUnavailable 0",
        put(STATEFUL, ("spec/updateStrategy", {"rollingUpdate": {"maxUnavailable": 0}})),
        "must not be 0",
    ),
    Refused(
        "FTL253",
        "DaemonSet strategy both 0",
        put(
            DAEMON, ("spec/updateStrategy", {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})
        ),
        "must not be 0 without maxSurge",
    ),
    Refused(
        "FTL253",
        "DaemonSet both nonzero",
        put(
            DAEMON, ("spec/updateStrategy", {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}})
        ),
        "needs maxUnavailable: 0",
    ),
    Refused(
        "FTL254",
        "Deployment deadline <= minReady",
        put(DEPLOYMENT, ("spec/minReadySeconds", 20), ("spec/progressDeadlineSeconds", 10)),
        "must be more than minReadySeconds, 20",
    ),
    Refused(
        "FTL254",
        "Deployment activeDeadline",
        put(DEPLOYMENT, (f"{IN_TEMPLATE}/activeDeadlineSeconds", 10)),
        "may not be there in a Deployment",
    ),
    Refused(
        "FTL255",
        "StatefulSet pvc name that is none",
        put(
            STATEFUL,
            (
                "spec/volumeClaimTemplates",
                [
                    {
                        "metadata": {"name": "V_v"},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                        },
                    }
                ],
            ),
        ),
        "digits and inner hyphens only",
    ),
]
NEAR_MISSES = [
    Refused("FTL217", "all nodes", put(SLICE, ("spec/nodeName", GONE), ("spec/allNodes", True))),
    Refused(
        "FTL217",
        "as many attributes as may be",
        put(SLICE, ("spec/devices/0/attributes", {f"a{i}": {"int": 1} for i in range(31)})),
    ),
    Refused(
        "FTL218",
        "as long as may be",
        put(
            CLAIM, (f"{REQUEST}/exactly/selectors", [{"cel": {"expression": "true" + " " * 10236}}])
        ),
    ),
    Refused(
        "FTL226",
        "two names",
        put(
            POD,
            (
                f"{BOX}/ports",
                [{"name": "a", "containerPort": 80}, {"name": "b", "containerPort": 80}],
            ),
        ),
    ),
    Refused(
        "FTL226",
        "a host port of two protocols",
        put(
            POD,
            (
                f"{BOX}/ports",
                [
                    {"containerPort": 80, "hostPort": 80},
                    {"containerPort": 80, "hostPort": 80, "protocol": "UDP"},
                ],
            ),
        ),
    ),
    Refused(
        "FTL226",
        "a sidecar with a probe",
        put(
            POD,
            (
                "spec/initContainers",
                [
                    {
                        "name": "i",
                        "image": "i",
                        "restartPolicy": "Always",
                        "livenessProbe": {"httpGet": {"port": 80}},
                    }
                ],
            ),
        ),
    ),
    Refused(
        "FTL226",
        "the host's network",
        put(POD, ("spec/hostNetwork", True), (f"{BOX}/ports", [{"containerPort": 80}])),
    ),
    Refused(
        "FTL227",
        "privileged",
        put(
            mount({"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}),
            (f"{BOX}/securityContext", {"privileged": True}),
        ),
    ),
    Refused(
        "FTL227",
        "a block of a claim",
        put(
            POD,
            ("spec/volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
            (f"{BOX}/volumeDevices", [{"name": "v", "devicePath": "/a"}]),
        ),
    ),
    Refused(
        "FTL228",
        "a sleep within the grace",
        put(
            POD,
            ("spec/terminationGracePeriodSeconds", 20),
            (f"{BOX}/lifecycle", {"preStop": {"sleep": {"seconds": 20}}}),
        ),
    ),
    Refused(
        "FTL228",
        "a profile of the node",
        put(
            POD,
            (
                "spec/securityContext",
                {"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}},
            ),
        ),
    ),
    Refused(
        "FTL228",
        "nameservers",
        put(POD, ("spec/dnsPolicy", "None"), ("spec/dnsConfig", {"nameservers": ["1.1.1.1"]})),
    ),
    Refused(
        "FTL228",
        "a node by its name",
        of_nodes({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}),
    ),
    Refused("FTL228", "domains that must be there", spread(minDomains=2)),
    Refused("FTL228", "a value", toleration(key="a", value="b-c", effect="NoSchedule")),
    Refused(
        "FTL229",
        "pages and memory",
        put(POD, (f"{BOX}/resources", {"limits": PAGES, "requests": PAGES})),
    ),
    Refused(
        "FTL236",
        "indexes",
        put(
            INDEXED,
            ("spec/completions", 5),
            ("spec/successPolicy", {"rules": [{"succeededIndexes": "0,2-4", "succeededCount": 4}]}),
        ),
    ),
    Refused("FTL237", "a time zone", put(CRON, ("spec/timeZone", "Etc/UTC"))),
    Refused(
        "FTL237",
        "ranges, steps and names",
        put(CRON, ("spec/schedule", "*/5 0-12/3 1,15 jan-mar MON-FRI")),
    ),
    Refused("FTL237", "every so often", put(CRON, ("spec/schedule", "@every 1h30m"))),
    Refused("FTL238", "a name that just fits", put(INDEXED, ("metadata/name", "a" * 61))),
    Refused(
        "FTL238", "its own name", put(JOB, ("spec/template/metadata/labels", {"job-name": "j"}))
    ),
    Refused(
        "FTL242", "a path below", mount({"name": "v", "mountPath": "/a:b", "subPath": "a/..b"})
    ),
    Refused(
        "FTL242",
        "the name of a variable",
        put(POD, (f"{BOX}/env", [{"name": "a.b-c d", "value": "x"}])),
    ),
    Refused(
        "FTL242",
        "a field of the pod",
        put(
            POD,
            (
                f"{BOX}/env",
                [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}],
            ),
        ),
    ),
    Refused(
        "FTL242",
        "a resource of the container",
        put(
            POD,
            (
                f"{BOX}/env",
                [
                    {
                        "name": "A",
                        "valueFrom": {"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}},
                    }
                ],
            ),
        ),
    ),
    Refused("FTL242", "a mode", volume(configMap={"name": "a", "defaultMode": 0o755})),
    Refused(
        "FTL242",
        "a port's name",
        put(POD, (f"{BOX}/ports", [{"name": "http-8080", "containerPort": 80}])),
    ),
    Refused(
        "FTL242",
        "a percentage",
        put(DEPLOYMENT, ("spec/strategy", {"rollingUpdate": {"maxSurge": "150%"}})),
    ),
    Refused(
        "FTL242",
        "a driver in large letters",
        put(
            CLAIM,
            ("spec/devices/config", [{"opaque": {"driver": "Gpu.example.com", "parameters": {}}}]),
        ),
    ),
    Refused(
        "FTL242",
        "an attribute of any driver",
        put(CLAIM, ("spec/devices/constraints", [{"matchAttribute": "a.com/b_c"}])),
    ),
    Refused(
        "FTL242",
        "a version",
        put(SLICE, ("spec/devices/0/attributes/index", {"version": "1.0.0-rc.1+b"})),
    ),
    Refused("FTL242", "a pool of two parts", put(SLICE, ("spec/pool/name", "a.b/c"))),
    Refused(
        "FTL243",
        "two spreads",
        put(
            POD,
            (
                "spec/topologySpreadConstraints",
                [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when}
                    for when in ("DoNotSchedule", "ScheduleAnyway")
                ],
            ),
        ),
    ),
    Refused(
        "FTL244",
        "as many rules as may be",
        put(
            JOB, ("spec/podFailurePolicy", {"rules": [on_exit(values=[i + 1]) for i in range(20)]})
        ),
    ),
    Refused(
        "FTL244",
        "as many devices as may be",
        put(SLICE, ("spec/devices", [{"name": f"d{i}"} for i in range(128)])),
    ),
    Refused(
        "FTL253",
        "one of the two",
        put(
            DAEMON, ("spec/updateStrategy", {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        ),
    ),
    Refused(
        "FTL253",
        "a partition",
        put(
            STATEFUL,
            ("spec/updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}),
        ),
    ),
    Refused(
        "FTL254",
        "a deadline that can be met",
        put(DEPLOYMENT, ("spec/minReadySeconds", 20), ("spec/progressDeadlineSeconds", 21)),
    ),
    Refused("FTL255", "a claim", claiming({"metadata": {"name": "v"}, "spec": STORED})),
    Refused(
        "FTL255",
        "no size",
        claiming({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"]}}),
        "is required",
    ),
    Refused(
        "FTL250",
        "an expression",
        put(
            DEPLOYMENT,
            (
                "spec/selector",
                {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "d"]}]},
            ),
        ),
    ),
    Refused(
        "FTL222",
        "a device of any domain",
        put(POD, (f"{BOX}/resources", {"limits": {"a.example.com/b_c": 1}})),
    ),
    Refused("FTL241", "a finalizer", put(POD, ("metadata/finalizers", ["example.com/b"]))),
]
DETAILS += NEAR_MISSES


def whole(*containers: Object, **resources: Object) -> Object:
    """A pod with resources of its own, and one container for each of the others."""
    boxes = [
        {"name": f"c{i}", "image": "i", "resources": own}
        for i, own in enumerate(containers or ({},))
    ]
    return put(POD, ("spec/resources", resources), ("spec/containers", boxes))


def resized(*policies: tuple[str, str], **pod: object) -> Object:
    entries = [{"resourceName": name, "restartPolicy": policy} for name, policy in policies]
    edits = [(f"spec/{field}", value) for field, value in pod.items()]
    return put(POD, (f"{BOX}/resizePolicy", entries), *edits)


HUGE_PAGES = "hugepages-2Mi"
# kubernetes/kubernetes, pkg/apis/core/validation/validation.go: validatePodResources,
# validatePodResourceConsistency, validateResizePolicy.
DETAILS += [
    Refused(
        "FTL228", "pod-level cpus", whole(limits={"cpus": 1}), "only cpu, memory and hugepages-"
    ),
    Refused(
        "FTL228",
        "pod-level request that is misspelt",
        whole(requests={"memroy": "1Gi"}),
        "only cpu, memory and hugepages-",
    ),
    Refused(
        "FTL228",
        "pod-level request of a device",
        whole(requests={"nvidia.com/gpu": 1}),
        "only for containers",
    ),
    Refused(
        "FTL228",
        "pod-level storage",
        whole(requests={"ephemeral-storage": "1Gi"}),
        "only for containers",
    ),
    Refused(
        "FTL228",
        "pod-level resources of a windows pod",
        put(whole(requests={"cpu": 1}), ("spec/os", {"name": "windows"})),
        "may not be set for a windows pod",
    ),
    Refused("FTL222", "pod-level below 0", whole(requests={"cpu": -1}), "not be less than 0"),
    Refused(
        "FTL222",
        "pod-level request over its limit",
        whole(requests={"cpu": 2}, limits={"cpu": "1500m"}),
        "is more than the limit, 1500m",
    ),
    Refused(
        "FTL222",
        "pod-level pages without a limit",
        whole(requests={HUGE_PAGES: "2Mi", "cpu": 1}),
        "needs a limit, too",
    ),
    Refused(
        "FTL222",
        "containers request more than their pod",
        whole({"requests": {"cpu": "600m"}}, {"requests": {"cpu": "600m"}}, requests={"cpu": 1}),
        "is less than the containers request together",
    ),
    Refused(
        "FTL222",
        "a limit over that of the pod",
        whole({"limits": {"memory": "2Gi"}}, limits={"memory": "1Gi"}),
        "is more than the pod's limit, 1Gi",
    ),
    Refused(
        "FTL222",
        "pages over those of the pod",
        whole(
            {"limits": {HUGE_PAGES: "4Mi", "cpu": 1}},
            {"limits": {HUGE_PAGES: "4Mi", "cpu": 1}},
            limits={HUGE_PAGES: "6Mi", "cpu": 2},
        ),
        "is less than the limits of the containers together",
    ),
    Refused(
        "FTL229", "pod-level pages alone", whole(limits={HUGE_PAGES: "2Mi"}), "needs memory or cpu"
    ),
    Refused(
        "FTL229",
        "pod-level pages in part",
        whole(limits={HUGE_PAGES: "3Mi", "cpu": 1}),
        "are no whole hugepages-2Mi",
    ),
    Refused(
        "FTL202", "resizePolicy of cpus", resized(("cpus", "NotRequired")), "one of cpu, memory"
    ),
    Refused(
        "FTL202",
        "resizePolicy of a device",
        resized(("nvidia.com/gpu", "NotRequired")),
        "one of cpu, memory",
    ),
    Refused(
        "FTL202",
        "resizePolicy that never restarts",
        resized(("cpu", "Never")),
        "one of NotRequired, RestartContainer",
    ),
    Refused(
        "FTL202",
        "resizePolicy in small letters",
        resized(("cpu", "notRequired")),
        "one of NotRequired, RestartContainer",
    ),
    Refused(
        "FTL228",
        "resizePolicy that restarts what never restarts",
        resized(("memory", "RestartContainer"), restartPolicy="Never"),
        "must be NotRequired",
    ),
    Refused(
        "FTL228",
        "resizePolicy of each",
        resized(("cpu", "NotRequired"), ("memory", "RestartContainer"), restartPolicy="OnFailure"),
    ),
    Refused(
        "FTL228",
        "resizePolicy of what never restarts",
        resized(("cpu", "NotRequired"), restartPolicy="Never"),
    ),
    Refused(
        "FTL222",
        "containers within their pod",
        whole(
            {"requests": {"cpu": "500m"}, "limits": {"cpu": 1}},
            {"requests": {"cpu": "500m"}, "limits": {"cpu": 1}},
            requests={"cpu": 1},
            limits={"cpu": 1},
        ),
    ),
    Refused(
        "FTL222",
        "an init container that requests as much as the others",
        put(
            whole({"requests": {"cpu": 1}}, requests={"cpu": 1}),
            (
                "spec/initContainers",
                [{"name": "i", "image": "i", "resources": {"requests": {"cpu": 1}}}],
            ),
        ),
    ),
    Refused(
        "FTL222",
        "an init container with a limit as that of the pod",
        put(
            whole({}, limits={"cpu": 1}),
            (
                "spec/initContainers",
                [{"name": "i", "image": "i", "resources": {"limits": {"cpu": 1}}}],
            ),
        ),
    ),
    Refused(
        "FTL229",
        "pod-level pages beside a container's cpu",
        whole({"requests": {"cpu": 1}}, limits={HUGE_PAGES: "2Mi"}),
    ),
]
