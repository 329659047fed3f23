"""Pods and workloads: what they say of claims, nodes and failures."""

import json

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.tables.case import FLEET, Case, claim, deployment, exactly, job_set, template

KNOWN = (*FLEET, template(exactly()), claim(exactly()))
DELETED = claim(exactly(), name="leaving")
DELETED["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
ALLOCATED = claim(exactly(), name="held")
ALLOCATED["status"] = {"allocation": {"devices": {"results": []}}}
IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def on_codes(*codes: int, action: str = "FailJob", operator: str = "In") -> Object:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}}


def job(*rules: Object, deadline: int | None = 600) -> Object:
    made = api.job("j", pod_failure_policy={"rules": list(rules)})
    made["spec"]["podReplacementPolicy"] = "Failed"
    if deadline:
        made["spec"]["activeDeadlineSeconds"] = deadline
    return made


def indexed(made: Object) -> Object:
    more = {"completionMode": "Indexed", "backoffLimitPerIndex": 1}
    return {**made, "spec": {**made["spec"], **more}}


def injected(made: Object, *places: str) -> Object:
    record = json.dumps({"policy": "own", "values": {place: {} for place in places}})
    metadata = {**made["metadata"], "annotations": {"fettle.dev/injected": record}}
    return {**made, "metadata": metadata}


def limited_per_index(made: Object, **more: object) -> Object:
    for entry in made["spec"]["replicatedJobs"]:
        entry["template"]["spec"] |= {"backoffLimitPerIndex": 1, **more}
    return made


def two_jobs(claims: dict[str, str]) -> Object:
    made = job_set(claims=claims)
    (first,) = made["spec"]["replicatedJobs"]
    made["spec"]["replicatedJobs"].append({**first, "name": "v"})
    return made


def uses(request: str) -> Object:
    made = api.pod("p", templates={"gpu": "t"})
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu", "request": request}]
    return made


def unused() -> Object:
    made = api.pod("p", templates={"gpu": "t"})
    del made["spec"]["containers"][0]["resources"]["claims"]
    return made


def restarting(*codes: int) -> Object:
    made = job(on_codes(42))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["restartPolicy"] = "Never"
    container["restartPolicyRules"] = [
        {"action": "Restart", "exitCodes": {"operator": "In", "values": list(codes)}}
    ]
    return made


def affine(zone: str) -> Object:
    made = api.pod("p", templates={"gpu": "t"})
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    made["spec"]["affinity"] = {"nodeAffinity": required}
    return made


def tolerating(key: str) -> Object:
    return api.pod("p", tolerations=[{"key": key, "operator": "Exists", "effect": "NoExecute"}])


def aged(version: str) -> tuple[Object, ...]:
    node = api.node("aged")
    node["status"]["nodeInfo"] = {"kubeletVersion": version}
    return (node,)


def restarting_all() -> Object:
    made = api.pod("p", templates={"gpu": "t"})
    (container,) = made["spec"]["containers"]
    container["restartPolicy"] = "Never"
    container["restartPolicyRules"] = [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    ]
    return made


DEDICATED = {"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}
RESERVED = (
    api.node("reserved", taints=[DEDICATED]),
    api.resource_slice("reserved", 1, driver="reserved.example.com"),
    api.device_class("reserved.example.com", driver="reserved.example.com"),
    template(exactly(device_class="reserved.example.com"), name="reserved"),
)


POLICY = {"rules": [IGNORE]}
CASES = [
    Case(
        "FTL035", "a typo", uses("gpus"), "has no request 'gpus'", "write request: gpu", known=KNOWN
    ),
    Case("FTL035", "its name", uses("gpu"), known=KNOWN),
    Case("FTL036", "a claim that no container uses", unused(), "no container uses", known=KNOWN),
    Case("FTL036", "a claim that one uses", api.pod("p", templates={"gpu": "t"}), known=KNOWN),
    Case(
        "FTL037",
        "a claim that is not there",
        api.pod("p", claims={"gpu": "leavin"}),
        "ResourceClaim default/leavin does not exist",
        "write leaving",
        known=(*KNOWN, DELETED),
    ),
    Case(
        "FTL037",
        "a claim on its way out",
        api.pod("p", claims={"gpu": "leaving"}),
        "is being deleted",
        known=(*FLEET, DELETED),
    ),
    Case("FTL037", "a claim that is there", api.pod("p", claims={"gpu": "c"}), known=KNOWN),
    Case(
        "FTL038",
        "a template that is not there",
        deployment(1, templates={"gpu": "tt"}),
        "ResourceClaimTemplate default/tt does not exist",
        known=KNOWN,
    ),
    Case("FTL038", "a template that is there", deployment(1, templates={"gpu": "t"}), known=KNOWN),
    Case(
        "FTL039",
        "300 replicas of one claim",
        deployment(300, claims={"gpu": "c"}),
        "up to 300 pods",
        known=KNOWN,
    ),
    Case(
        "FTL039",
        "a wide Job",
        api.job("j", parallelism=257, completions=1000, claims={"gpu": "c"}),
        "257 pods",
        known=KNOWN,
        severity="Warn",
    ),
    Case(
        "FTL039",
        "a JobSet of many Jobs",
        job_set(3, parallelism=100, completions=100, claims={"gpu": "c"}),
        "300 pods",
        known=KNOWN,
        severity="Warn",
    ),
    Case("FTL039", "256 replicas", deployment(256, claims={"gpu": "c"}), known=KNOWN),
    Case(
        "FTL056",
        "one claim by two names",
        deployment(1, claims={"gpu": "c", "again": "c"}),
        "names ResourceClaim c twice",
        "list it once",
        known=KNOWN,
    ),
    Case(
        "FTL056",
        "two claims of one template",
        deployment(1, templates={"gpu": "t", "again": "t"}),
        known=KNOWN,
    ),
    Case(
        "FTL056",
        "two Jobs with one claim",
        two_jobs(claims={"gpu": "c"}),
        known=KNOWN,
    ),
    Case(
        "FTL039", "300 replicas of a template", deployment(300, templates={"gpu": "t"}), known=KNOWN
    ),
    Case(
        "FTL040",
        "two replicas on a claim of one node's GPU",
        deployment(2, claims={"gpu": "c"}),
        "local to a node",
        known=KNOWN,
    ),
    Case("FTL040", "one replica", deployment(1, claims={"gpu": "c"}), known=KNOWN),
    Case(
        "FTL044",
        "a template's claim on a node by name",
        api.pod("p", templates={"gpu": "t"}, node="gpu-a"),
        "with nodeName it never will be",
        known=KNOWN,
    ),
    Case(
        "FTL044",
        "in a workload, on a claim that another pod may have allocated",
        deployment(1, claims={"gpu": "c"}, node="gpu-a"),
        "with nodeName it never will be",
        known=KNOWN,
    ),
    Case(
        "FTL044",
        "in a workload",
        deployment(1, templates={"gpu": "t"}, node="gpu-a"),
        "with nodeName it never will be",
        known=KNOWN,
        severity="Deny",
    ),
    Case(
        "FTL044",
        "a claim that is allocated",
        api.pod("p", claims={"gpu": "held"}, node="gpu-a"),
        known=(*FLEET, ALLOCATED),
    ),
    Case(
        "FTL045",
        "a nodeSelector for a zone without GPUs",
        api.pod("p", templates={"gpu": "t"}, node_selector={"zone": "c"}),
        "excludes all 2 nodes",
        known=KNOWN,
    ),
    Case(
        "FTL045",
        "a misspelt label",
        api.pod("p", templates={"gpu": "t"}, node_selector={"zoen": "b"}),
        "no node with such devices has a label 'zoen'",
        "did you mean zone?",
        known=KNOWN,
    ),
    Case(
        "FTL045",
        "affinity to a zone without GPUs",
        affine("c"),
        "excludes all 2 nodes",
        known=KNOWN,
    ),
    Case(
        "FTL045",
        "a zone with GPUs",
        api.pod("p", templates={"gpu": "t"}, node_selector={"zone": "b"}),
        known=KNOWN,
    ),
    Case("FTL045", "affinity to a zone with GPUs", affine("b"), known=KNOWN),
    Case(
        "FTL045",
        "a taint of the only node",
        api.pod("p", templates={"gpu": "reserved"}),
        "does not tolerate the taints of the only node",
        known=RESERVED,
    ),
    Case(
        "FTL045",
        "the taint is tolerated",
        api.pod("p", templates={"gpu": "reserved"}, tolerations=[DEDICATED]),
        known=RESERVED,
    ),
    Case(
        "FTL046",
        "OnFailure in a JobSet",
        job_set(pod_failure_policy=POLICY, restart_policy="OnFailure"),
        "needs Never",
    ),
    Case("FTL046", "Never in a JobSet", job_set(pod_failure_policy=POLICY, restart_policy="Never")),
    Case(
        "FTL047",
        "codes out of order in a JobSet",
        job_set(pod_failure_policy={"rules": [on_codes(2, 1)]}),
        "must be ascending",
    ),
    Case(
        "FTL047",
        "FailIndex without a limit per index in a JobSet",
        job_set(pod_failure_policy={"rules": [on_codes(1, action="FailIndex")]}),
        "FailIndex needs backoffLimitPerIndex",
    ),
    Case(
        "FTL047", "a good one in a JobSet", job_set(pod_failure_policy={"rules": [on_codes(1, 2)]})
    ),
    Case(
        "FTL047",
        "a limit per index in a JobSet, whose Jobs are Indexed if nothing else is written",
        limited_per_index(job_set(pod_failure_policy={"rules": [on_codes(1, action="FailIndex")]})),
    ),
    Case(
        "FTL047",
        "a limit per index where there are none, in a JobSet",
        limited_per_index(
            job_set(pod_failure_policy={"rules": [on_codes(1)]}), completionMode="NonIndexed"
        ),
        "needs completionMode: Indexed",
    ),
    Case(
        "FTL048", "143 fails the Job first", job(on_codes(1, 143), IGNORE), "matches exit code 143"
    ),
    Case(
        "FTL048",
        "all but some codes fail the Job first",
        job(on_codes(1, operator="NotIn"), IGNORE),
        "matches exit code 143",
    ),
    Case(
        "FTL048",
        "disruptions are not ignored at all",
        job(on_codes(1, 143)),
        "no rule ignores disruptions",
        "put a rule before it",
    ),
    Case("FTL048", "disruptions come first", job(IGNORE, on_codes(1, 143))),
    Case("FTL048", "disruptions count first", job({**IGNORE, "action": "Count"}, on_codes(1, 143))),
    Case("FTL048", "another code", job(on_codes(42), IGNORE)),
    Case(
        "FTL048",
        "an index fails first",
        indexed(job(on_codes(143, action="FailIndex"), on_codes(1, 143))),
    ),
    Case("FTL048", "it counts first", job(on_codes(143, action="Count"), on_codes(1, 143))),
    Case(
        "FTL050",
        "a typo",
        job(
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTargt", "status": "True"}]}
        ),
        "pods have no condition",
        "write DisruptionTarget",
    ),
    Case(
        "FTL050",
        "a condition of somebody's own",
        job(
            {
                "action": "Ignore",
                "onPodConditions": [{"type": "example.com/Lost", "status": "True"}],
            }
        ),
    ),
    Case("FTL051", "256", job(on_codes(256)), "256 is not an exit code", "the code that the"),
    Case("FTL051", "255", job(on_codes(255))),
    Case(
        "FTL052", "restarted on the same code", restarting(41, 42), "restarts the container on 42"
    ),
    Case("FTL052", "restarted on another code", restarting(41)),
    Case(
        "FTL053",
        "an old kubelet",
        restarting_all(),
        "1 of 1 nodes run a kubelet that ignores it (v1.35.2)",
        known=aged("v1.35.2"),
    ),
    Case("FTL053", "a new kubelet", restarting_all(), known=aged("v1.36.0-gke.1")),
    Case(
        "FTL054",
        "a typo in a taint of the cluster's own",
        tolerating("example.com/dedicatd"),
        "but there is 'example.com/dedicated'",
        known=RESERVED,
    ),
    Case(
        "FTL054",
        "a typo",
        tolerating("node.kubernetes.io/unreachabel"),
        "there is no taint",
        "write node.kubernetes.io/unreachable",
    ),
    Case("FTL054", "a taint of somebody's own", tolerating("example.com/maintenance")),
]
