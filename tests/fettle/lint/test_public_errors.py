"""Errors that stand in public examples, as they stand there, cut to what matters: each is found."""

from typing import NamedTuple

import pytest

from fettle.api import objects_of_yaml
from fettle.lint import Severity
from tests.fettle.lint.builders import checked


class Public(NamedTuple):
    """`source`: repository and file. `path`: where the error is."""

    source: str
    rule: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}-{self.rule}"


SELECTOR = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: example-resource-claim
spec:
  devices:
    requests:
    - name: single-gpu-claim
      exactly:
        deviceClassName: example-device-class
        selectors:
        - cel:
          expression: device.attributes["driver.example.com"].type == "gpu"
"""
SUCCESS = """\
apiVersion: batch/v1
kind: Job
spec:
  completions: 10
  completionMode: Indexed
  successPolicy: {rules: [{succeededIndexes: 0-2, succeededCount: 1}]}
  template:
    spec:
      containers: [{name: main, image: python}]
"""
SOURCE = """\
apiVersion: v1
kind: Pod
metadata: {name: inference-pod}
spec:
  resourceClaims:
  - name: gpu
    source: {resourceClaimTemplateName: inference-gpu}
  containers: [{name: ctr, image: ubuntu, resources: {claims: [{name: gpu}]}}]
"""
NO_LIMIT = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: sample-leaderworkerset}
spec:
  leaderWorkerTemplate:
    size: 3
    workerTemplate:
      spec:
        containers:
        - name: nginx-worker
          image: registry.k8s.io/nginx-slim:0.27
          resources: {requests: {cpu: 200m, nvidia.com/gpu: "1"}}
"""
PRIORITY = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: elastic-job}
spec:
  tasks:
  - template:
      spec:
        priorityClass: low-priority
        containers: [{name: nginx, image: nginx}]
"""
PROTOCOL = """\
apiVersion: v1
kind: Pod
metadata: {name: aws-web}
spec:
  containers: [{name: web, image: nginx, ports: [{containerPort: 80, protocol: tcp}]}]
"""
DOMAIN = """\
apiVersion: v1
kind: Pod
metadata: {name: pod-0}
spec:
  containers: [{name: pod-0, image: registry.k8s.io/test-webserver}]
  volumes:
  - name: vol-0
    scaleIO:
      gateway: https://localhost:443/api
      system: scaleio
      protectionDoamin: pd01
      volumeName: vol-0
      secretRef: {name: sio-secret}
"""
WEBSITE = "kubernetes/website content/en/examples"
VOLUMES = "kubernetes/examples _archived/volumes"
NO_NAME = "metadata.name"
EXPRESSION = "spec.devices.requests[0].exactly.selectors[0].expression"
LIMITS = "spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].resources.requests"
TAS = "kubernetes-sigs/kueue …/serving-workloads/sample-leaderworkerset-tas.yaml"
ELASTIC = "volcano-sh/volcano example/kubecon-2019-china/task-priority/elastic-job.yaml"
DEMO = "NVIDIA/k8s-dra-driver-gpu demo/specs/selectors/pods.yaml"
PUBLIC = [
    Public(f"{WEBSITE}/dra/resourceclaim.yaml", "FTL201", EXPRESSION, SELECTOR),
    Public(f"{WEBSITE}/controllers/job-success-policy-example.yaml", "FTL240", NO_NAME, SUCCESS),
    Public(DEMO, "FTL201", "spec.resourceClaims[0].source", SOURCE),
    Public(TAS, "FTL222", f"{LIMITS}[nvidia.com/gpu]", NO_LIMIT),
    Public(ELASTIC, "FTL201", "spec.tasks[0].template.spec.priorityClass", PRIORITY),
    Public(
        f"{VOLUMES}/aws_ebs/aws-ebs-web.yaml",
        "FTL202",
        "spec.containers[0].ports[0].protocol",
        PROTOCOL,
    ),
    Public(
        f"{VOLUMES}/scaleio/pod.yaml", "FTL201", "spec.volumes[0].scaleIO.protectionDoamin", DOMAIN
    ),
]


@pytest.mark.parametrize("error", PUBLIC, ids=str)
def test_an_error_of_a_public_example_is_found(error: Public) -> None:
    ((_, made),) = objects_of_yaml(error.text.encode())
    found = {(one.rule, one.field): one.severity for one in checked(made)}
    by_form = made["apiVersion"].startswith("batch.volcano.sh")  # without a definition: a warning
    expected = Severity.WARN if by_form else Severity.DENY
    assert found[error.rule, error.path] is expected
