// The definitions of other projects' workloads, so that the real schema judges what we change in
// them: their modules are downloaded for the YAML in them, and nothing is built.
module fettle.dev/tests/crds

go 1.26

require (
	github.com/kubeflow/trainer/v2 v2.2.0
	sigs.k8s.io/jobset v0.11.1
	sigs.k8s.io/lws v0.7.0
)
