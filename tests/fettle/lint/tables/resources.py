"""Extended resources: names, amounts, and the nodes that have them; taints for whole drivers."""

from typing import Any

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.tables.case import Case, deployment

PRODUCT = "nvidia.com/gpu.product"
FABRIC = "feature.node.kubernetes.io/pci-15b3.present"
RESERVED = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
KNOWN = (
    api.node("plugin-a", 8, labels={PRODUCT: "NVIDIA-H100-80GB-HBM3", FABRIC: "true"}),
    api.node("plugin-b", 4, labels={PRODUCT: "NVIDIA-A100-SXM4-80GB"}),
    api.node("plugin-c", 2, resource="amd.com/gpu", taints=[{**RESERVED, "key": "amd.com/gpu"}]),
    api.node(
        "plugin-d",
        2,
        resource="google.com/tpu",
        labels={"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"},
        taints=[{**RESERVED, "key": "google.com/tpu"}],
    ),
    api.device_class("stands.example.com", extended_resource="example.com/stands"),
)


def asking(resource: str = api.GPU, count: int = 1, **more: Any) -> Object:
    return api.pod("p", gpus=count, resource=resource, **more)


def beside(made: Object, resource: str, count: int = 1, *, before: bool = False) -> Object:
    """With one more container, or one that runs before the others."""
    limits = {"limits": {resource: str(count)}}
    one = {"name": "more", "image": "example.com/none:1", "resources": limits}
    made["spec"].setdefault("initContainers" if before else "containers", []).append(one)
    return made


def where(key: str, *values: str, operator: str = "In", terms: int = 1) -> Object:
    expression = {"key": key, "operator": operator, "values": list(values)}
    found = [{"matchExpressions": [expression]}, {"matchExpressions": [{**expression, "key": "x"}]}]
    required = {"nodeSelectorTerms": found[:terms]}
    made = asking()
    made["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return made


def tainting(effect: str, **chosen: str) -> Object:
    return api.device_taint_rule("r", "example.com/bad", effect, **chosen)


def for_none() -> Object:
    made = tainting("NoExecute")
    del made["spec"]["deviceSelector"]
    return made


OWN = "fettle.dev/health.nvidia.com_gpu"
POOL = "example.com/pool"
POOLS = (
    api.node("pool-a", 8, resource="example.com/pooled", labels={POOL: "gpu"}),
    api.node("pool-b", 8, resource="example.com/pooled", labels={POOL: "gpu"}),
    api.node("pool-c", labels={POOL: "cpu"}),
)


TAINTED = (
    api.node("taint-a", 8, taints=[RESERVED]),
    api.node("taint-b", 4, taints=[RESERVED], labels={POOL: "old"}),
    api.node("taint-c", labels={POOL: "cpu"}),
)
BY_SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}  # as the docs of AKS have it
OF_ALL = (
    api.node("sku-a", 8, taints=[BY_SKU]),
    api.node("sku-b", 8, taints=[BY_SKU]),
    api.node("sku-c"),
)
EVERYTHING = {"operator": "Exists"}
FOR_GPUS = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def tolerating(*tolerations: Object, prefers: str = "", **more: Any) -> Object:
    """A pod without devices; it prefers nodes whose label has this operator."""
    made = api.pod("p", tolerations=list(tolerations), **more)
    if prefers:
        wanted = {"key": POOL, "operator": prefers, "values": ["cpu"]}
        term = {"weight": 1, "preference": {"matchExpressions": [wanted]}}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
        made["spec"]["affinity"] = {"nodeAffinity": preferred}
    return made


def of_daemon_set() -> Object:
    made = tolerating(EVERYTHING)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return made


def by_runtime() -> Object:
    made = api.pod("p", node_selector={POOL: "gpu"})
    made["spec"]["runtimeClassName"] = "nvidia"
    return made


def on_each_node() -> Object:
    made = deployment(1, node_selector={POOL: "gpu"})
    del made["spec"]["replicas"]
    return {**made, "kind": "DaemonSet"}


CASES = [
    Case(
        "FTL059",
        "a plural",
        asking("nvidia.com/gpus"),
        "no node offers 'nvidia.com/gpus' (they offer nvidia.com/gpu)",
        "did you mean nvidia.com/gpu?",
        known=KNOWN,
    ),
    Case(
        "FTL059",
        "a domain without its end",
        asking("nvidia/gpu"),
        "(they offer amd.com/gpu, example.com/stands, google.com/tpu, nvidia.com/gpu)",
        "did you mean nvidia.com/gpu?",
        known=KNOWN,
    ),
    Case(
        "FTL059",
        "of a workload",
        deployment(1, gpus=1, resource="example.com/dongle"),
        "(they offer example.com/stands)",
        "have its device plugin installed first",
        known=KNOWN,
    ),
    Case(
        "FTL059",
        "another known one is meant",
        asking("habana/gaudi"),
        "no node offers 'habana/gaudi'",
        "did you mean habana.ai/gaudi?",
        known=KNOWN,
    ),
    Case(
        "FTL059",
        "a plural, in a cluster that is not known",
        asking("amd.com/gpus"),
        "'amd.com/gpus'",
        "did you mean amd.com/gpu?",
        known=(),
        possible=True,
    ),
    Case("FTL059", "one that a node offers", asking(), known=KNOWN),
    Case("FTL059", "one that a class stands for", asking("example.com/stands"), known=KNOWN),
    Case(
        "FTL059",
        "the implicit one of a class",
        asking("deviceclass.resource.kubernetes.io/stands.example.com"),
        known=KNOWN,
    ),
    Case(
        "FTL059",
        "what an extender counts",
        beside(asking(), "nvidia.com/gpumem", 3000),
        known=KNOWN,
    ),
    Case("FTL059", "none of it", asking("example.com/dongle", 0), known=KNOWN),
    Case(
        "FTL060",
        "more than any node has",
        asking(count=9),
        "needs 9 units of nvidia.com/gpu, but no node has more than 8",
        "ask for at most 8",
        known=KNOWN,
    ),
    Case(
        "FTL060",
        "in two containers together",
        beside(asking(count=5), api.GPU, 4),
        "needs 9 units",
        known=KNOWN,
    ),
    Case("FTL060", "as many as a node has", asking(count=8), known=KNOWN),
    Case(
        "FTL060",
        "one container after the other",
        beside(asking(count=5), api.GPU, 8, before=True),
        known=KNOWN,
    ),
    Case("FTL060", "of a class", asking("example.com/stands", 99), known=KNOWN),
    Case(
        "FTL061",
        "a product that no node has",
        asking(node_selector={PRODUCT: "NVIDIA-A100-SXM4-80G"}),
        f"no node with nvidia.com/gpu has {PRODUCT}: NVIDIA-A100-SXM4-80G; they have",
        "did you mean NVIDIA-A100-SXM4-80GB?",
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "a label that no node has",
        asking(node_selector={"nvidia.com/gpu.produkt": "NVIDIA-A100-SXM4-80GB"}),
        "has a label 'nvidia.com/gpu.produkt'",
        f"did you mean {PRODUCT}?",
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "an affinity to a product that no node has",
        where(PRODUCT, "H100", "H200"),
        f"has {PRODUCT}: H100 or H200; they have NVIDIA-A100-SXM4-80GB, NVIDIA-H100-80GB-HBM3",
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "the node that matches has too few",
        asking(count=8, node_selector={PRODUCT: "NVIDIA-A100-SXM4-80GB"}),
        "they have NVIDIA-H100-80GB-HBM3",
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "two labels that no node has together",
        asking(node_selector={PRODUCT: "NVIDIA-A100-SXM4-80GB", FABRIC: "true"}),
        "no node with nvidia.com/gpu matches",
        "widen it",
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "an affinity away from all",
        where(PRODUCT, "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", operator="NotIn"),
        "no node with nvidia.com/gpu matches",
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "a taint that is not tolerated",
        asking("amd.com/gpu"),
        "every node with amd.com/gpu has a taint that the pod does not tolerate: amd.com/gpu",
        "tolerate amd.com/gpu",
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "a taint that is tolerated",
        asking("amd.com/gpu", tolerations=[{"key": "amd.com/gpu", "operator": "Exists"}]),
        known=KNOWN,
    ),
    Case("FTL061", "a taint that GKE has pods tolerate", asking("google.com/tpu"), known=KNOWN),
    Case(
        "FTL061",
        "a product that a node has",
        asking(node_selector={PRODUCT: "NVIDIA-A100-SXM4-80GB"}),
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "a product of several",
        where(PRODUCT, "H100", "NVIDIA-H100-80GB-HBM3"),
        known=KNOWN,
    ),
    Case(
        "FTL061",
        "a term of two",
        where(PRODUCT, "NVIDIA-H100-80GB-HBM3", terms=2),
        known=KNOWN,
    ),
    Case("FTL061", "Fettle's own affinity", where(OWN, "healthy", "degraded"), known=KNOWN),
    Case("FTL061", "Fettle's own label", asking(node_selector={OWN: "healthy"}), known=KNOWN),
    Case(
        "FTL061",
        "a product that no node has beside Fettle's own label",
        asking(node_selector={OWN: "healthy", PRODUCT: "none"}),
        f"no node with nvidia.com/gpu has {PRODUCT}: none; they have",
        known=KNOWN,
    ),
    Case("FTL061", "no resource", api.pod("p", node_selector={PRODUCT: "none"}), known=KNOWN),
    Case(
        "FTL063",
        "a pod without devices",
        api.pod("p", node_selector={POOL: "gpu"}),
        "all 2 nodes that match have some; 1 others have none",
        "leave it out",
        known=POOLS,
    ),
    Case("FTL063", "one with devices", asking(node_selector={POOL: "gpu"}), known=POOLS),
    Case("FTL063", "elsewhere", api.pod("p", node_selector={POOL: "cpu"}), known=POOLS),
    Case("FTL063", "anywhere", api.pod("p"), known=POOLS),
    Case("FTL063", "nowhere", api.pod("p", node_selector={POOL: "tpu"}), known=POOLS),
    Case("FTL063", "by its runtime", by_runtime(), known=POOLS),
    Case("FTL063", "on each node", on_each_node(), known=POOLS),
    Case(
        "FTL063",
        "a pod that tolerates the taint of GPUs",
        tolerating({"key": "other"}, FOR_GPUS),
        "tolerates nvidia.com/gpu, which keeps pods off 2 nodes with devices; 1 others have none",
        "leave it out, or prefer nodes without devices",
        known=TAINTED,
    ),
    Case(
        "FTL063",
        "a pod that tolerates everything",
        tolerating(EVERYTHING),
        "the pod asks for no device and tolerates nvidia.com/gpu",
        known=TAINTED,
    ),
    Case(
        "FTL063",
        "a workload that tolerates everything",
        deployment(1, tolerations=[EVERYTHING]),
        "off 2 nodes with devices",
        known=TAINTED,
    ),
    Case(
        "FTL063",
        "a taint that all nodes with devices and no others have",
        tolerating(EVERYTHING),
        "tolerates sku, which keeps",
        known=OF_ALL,
    ),
    Case(
        "FTL063",
        "a preference for nodes with devices",
        tolerating(FOR_GPUS, prefers="NotIn"),
        "tolerates nvidia.com/gpu",
        known=TAINTED,
    ),
    Case(
        "FTL063",
        "a preference for others",
        tolerating(FOR_GPUS, prefers="In"),
        known=TAINTED,
    ),
    Case("FTL063", "tolerant, with devices", asking(tolerations=[FOR_GPUS]), known=TAINTED),
    Case(
        "FTL063",
        "tolerant, elsewhere",
        tolerating(FOR_GPUS, node_selector={POOL: "cpu"}),
        known=TAINTED,
    ),
    Case("FTL063", "of a DaemonSet", of_daemon_set(), known=TAINTED),
    Case("FTL063", "tolerant where nothing is tainted", tolerating(EVERYTHING), known=POOLS),
    Case("FTL063", "tolerant of another taint", tolerating({"key": "other"}), known=TAINTED),
    Case("FTL063", "tolerant where all have devices", tolerating(FOR_GPUS), known=TAINTED[:2]),
    Case(
        "FTL113",
        "evicts from all devices of a driver",
        tainting("NoExecute", driver="swept.example.com"),
        "every device of swept.example.com: every pod that uses one is evicted at once",
        "name pool and device",
    ),
    Case(
        "FTL113",
        "evicts from all devices",
        tainting("NoExecute"),
        "for every device of every driver: every pod that uses one is evicted",
    ),
    Case(
        "FTL113",
        "keeps pods off all devices",
        tainting("NoSchedule"),
        "for every device of every driver: no pod gets one any more",
    ),
    Case("FTL113", "is for no device", for_none(), "without a deviceSelector"),
    Case("FTL113", "only informs", tainting("None")),
    Case("FTL113", "keeps pods off a driver", tainting("NoSchedule", driver="d.example.com")),
    Case("FTL113", "evicts from a pool", tainting("NoExecute", driver="d.example.com", pool="n")),
    Case("FTL113", "evicts from pools of a name", tainting("NoExecute", pool="n")),
]
