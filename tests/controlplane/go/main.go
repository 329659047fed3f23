// Command controlplane is every Kubernetes component and Go tool that the tests
// run, in one binary: the first argument picks one, the rest are its own flags.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	_ "time/tzdata"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var components = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"echo-extender":           exitStatus(echoExtender),
	"extender-client":         exitStatus(extenderClient),
	"load":                    exitStatus(load),
	"oracle":                  exitStatus(oracle),
}

func main() {
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		names := strings.Join(slices.Sorted(maps.Keys(components)), "|")
		fmt.Fprintf(os.Stderr, "usage: controlplane %s [flags]\n", names)
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	os.Exit(components[os.Args[0]]())
}

// exitStatus turns one of our own tools into a component.
func exitStatus(tool func(args []string) error) func() int {
	return func() int {
		if err := tool(os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
			return 1
		}
		return 0
	}
}
