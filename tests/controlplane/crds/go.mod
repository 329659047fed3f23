// The definitions of other projects, so that the real schema judges what we ship for them and what we
// change in their objects: their modules are downloaded for the YAML in them, and nothing is built.
module fettle.dev/tests/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/kubeflow/trainer/v2 v2.2.0
	github.com/kubeflow/training-operator v1.9.3
	github.com/kyverno/kyverno v1.12.0
	github.com/openreports/reports-api v0.2.1
	github.com/ray-project/kuberay/ray-operator v1.5.1
	sigs.k8s.io/jobset v0.11.1
	sigs.k8s.io/kueue v0.16.1
	sigs.k8s.io/lws v0.7.0
	sigs.k8s.io/node-feature-discovery v0.18.3
)
