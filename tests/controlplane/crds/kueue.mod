// Kueue alone: it asks for newer versions of the other projects than are served with them.
module fettle.dev/tests/crds

go 1.26.0

require sigs.k8s.io/kueue v0.17.0
