package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

type fleet struct {
	prefix   string
	nodes    int
	devices  int
	resource string
	driver   string
	class    string
	slices   bool
}

// load fills a cluster with Ready nodes of devices, several requests at a time.
func load(args []string) error {
	var f fleet
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the cluster")
	parallel := flags.Int("parallel", 32, "requests under way at once")
	flags.IntVar(&f.nodes, "nodes", 100, "nodes to create")
	flags.IntVar(&f.devices, "devices", 8, "devices of each node")
	flags.StringVar(&f.prefix, "prefix", "node-", "nodes are named by this and five digits")
	flags.StringVar(&f.resource, "resource", "nvidia.com/gpu", "extended resource in capacity and allocatable; empty for none")
	flags.BoolVar(&f.slices, "slices", false, "also create one ResourceSlice per node, and the DeviceClass")
	flags.StringVar(&f.driver, "driver", "gpu.nvidia.com", "driver of the slices")
	flags.StringVar(&f.class, "device-class", "gpu.nvidia.com", "name of the DeviceClass that selects the driver's devices")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := f.create(context.Background(), client, *parallel); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"nodes": f.nodes, "devices": f.nodes * f.devices, "seconds": time.Since(start).Seconds(),
	})
}

func (f *fleet) create(ctx context.Context, client kubernetes.Interface, parallel int) error {
	if f.slices {
		_, err := client.ResourceV1().DeviceClasses().Create(ctx, f.deviceClass(), meta.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range f.nodes {
		group.Go(func() error { return f.createNode(ctx, client, fmt.Sprintf("%s%05d", f.prefix, i)) })
	}
	return group.Wait()
}

func (f *fleet) createNode(ctx context.Context, client kubernetes.Interface, name string) error {
	if _, err := client.CoreV1().Nodes().Create(ctx, f.node(name), meta.CreateOptions{}); err != nil {
		return err
	}
	// Admission taints every new node not-ready; without a kubelet nobody takes that off.
	untaint := []byte(`{"spec":{"taints":null}}`)
	if _, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, untaint, meta.PatchOptions{}); err != nil {
		return err
	}
	if !f.slices {
		return nil
	}
	_, err := client.ResourceV1().ResourceSlices().Create(ctx, f.slice(name), meta.CreateOptions{})
	return err
}

func (f *fleet) node(name string) *core.Node {
	amounts := core.ResourceList{
		core.ResourceCPU:    resource.MustParse("128"),
		core.ResourceMemory: resource.MustParse("1Ti"),
		core.ResourcePods:   resource.MustParse("110"),
	}
	if f.resource != "" {
		amounts[core.ResourceName(f.resource)] = *resource.NewQuantity(int64(f.devices), resource.DecimalSI)
	}
	return &core.Node{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
			core.LabelHostname: name, core.LabelOSStable: "linux", core.LabelArchStable: "amd64",
		}},
		Status: core.NodeStatus{
			Capacity:    amounts,
			Allocatable: amounts,
			Conditions: []core.NodeCondition{{
				Type: core.NodeReady, Status: core.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: meta.Now(), LastTransitionTime: meta.Now(),
			}},
		},
	}
}

func (f *fleet) slice(node string) *resourceapi.ResourceSlice {
	devices := make([]resourceapi.Device, f.devices)
	for i := range devices {
		devices[i] = resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"index":       {IntValue: ptr.To(int64(i))},
				"uuid":        {StringValue: ptr.To(fmt.Sprintf("GPU-%s-%d", node, i))},
				"productName": {StringValue: ptr.To("NVIDIA H100 80GB HBM3")},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory": {Value: resource.MustParse("80Gi")},
			},
		}
	}
	return &resourceapi.ResourceSlice{
		ObjectMeta: meta.ObjectMeta{Name: node + "-" + f.driver},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   f.driver,
			NodeName: ptr.To(node),
			Pool:     resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
			Devices:  devices,
		},
	}
}

func (f *fleet) deviceClass() *resourceapi.DeviceClass {
	expression := fmt.Sprintf("device.driver == %q", f.driver)
	return &resourceapi.DeviceClass{
		ObjectMeta: meta.ObjectMeta{Name: f.class},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: expression}},
		}},
	}
}
