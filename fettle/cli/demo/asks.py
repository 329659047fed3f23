"""What the demo asks: pods as the scheduler would send them, and a claim that can never work."""

from typing import Any

POLICIES = ("training", "inference", "scavenger")


def plugin_pod(policy: str, gpus: int) -> dict[str, Any]:
    """A pod that asks a device plugin for GPUs."""
    limits = {"nvidia.com/gpu": str(gpus)}
    return _pod(f"{policy}-plugin", policy, resources={"limits": limits, "requests": limits})


def claim_pod(policy: str) -> dict[str, Any]:
    """A pod that asks for one GPU by DRA, through a ResourceClaimTemplate."""
    pod = _pod(f"{policy}-dra", policy, resources={"claims": [{"name": "gpu"}]})
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return pod


def _pod(name: str, policy: str, *, resources: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "annotations": {"fettle.dev/policy": policy},
        },
        "spec": {"containers": [{"name": "main", "image": "train", "resources": resources}]},
    }


def oversized_claim() -> dict[str, Any]:
    """An AdmissionReview of a ResourceClaim with more devices than any claim may hold."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "forty-gpus", "namespace": "ml"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpus",
                        "exactly": {
                            "deviceClassName": "gpu.nvidia.com",
                            "allocationMode": "ExactCount",
                            "count": 40,
                        },
                    }
                ]
            }
        },
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "8d3c7b1e-demo",
            "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
            "resource": {
                "group": "resource.k8s.io",
                "version": "v1",
                "resource": "resourceclaims",
            },
            "name": "forty-gpus",
            "namespace": "ml",
            "operation": "CREATE",
            "userInfo": {"username": "demo"},
            "object": claim,
            "oldObject": None,
            "dryRun": False,
        },
    }
