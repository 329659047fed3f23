package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	core "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// allocationCase is what an allocator sees of one node, in API objects.
type allocationCase struct {
	Features         []string                     `json:"features"`
	Node             *core.Node                   `json:"node"`
	Claims           []*resourceapi.ResourceClaim `json:"claims"`
	Classes          classes                      `json:"classes"`
	Slices           []*resourceapi.ResourceSlice `json:"slices"`
	AllocatedDevices [][3]string                  `json:"allocatedDevices"`
	AllocatedShares  [][4]string                  `json:"allocatedSharedDeviceIDs"`
	AllocatedAmounts []allocatedAmounts           `json:"allocatedCapacity"`
	MaxSteps         int64                        `json:"maxSteps"` // 0: no limit
}

type allocatedAmounts struct {
	ID       [3]string                                       `json:"id"`
	Capacity map[resourceapi.QualifiedName]resource.Quantity `json:"capacity"`
}

// allocationAnswer: Results is null where the node cannot satisfy the claims.
// ErrorOnNode: the error fails this node only and not the scheduling attempt.
type allocationAnswer struct {
	Results     []resourceapi.AllocationResult `json:"results"`
	Error       string                         `json:"error,omitempty"`
	ErrorOnNode bool                           `json:"errorOnNode,omitempty"`
	Interrupted bool                           `json:"interrupted,omitempty"`
	Steps       int64                          `json:"steps"`
}

// anyShare replaces the random identifiers of shares, as upstream's tests do.
var anyShare = types.UID("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa")

func init() {
	// The default gates need "incubating"; "stable" would answer cases that name no
	// feature, with pools in the random order of a Go map.
	structured.EnableAllocators("incubating", "experimental")
}

func (c *allocationCase) answer() any {
	features, err := featuresNamed(c.Features)
	if err != nil {
		return map[string]string{"malformed": err.Error()}
	}
	selectors := cel.NewCache(100, ofSelectors(features))
	allocator, err := structured.NewAllocator(
		context.Background(), features, c.allocatedState(), c.Classes, c.Slices, selectors)
	if err != nil {
		return map[string]string{"malformed": err.Error()}
	}
	budget := &stepBudget{Context: context.Background(), left: c.MaxSteps, limited: c.MaxSteps > 0}
	results, err := allocator.Allocate(budget, c.Node, c.Claims)
	for _, result := range results {
		for i := range result.Devices.Results {
			if result.Devices.Results[i].ShareID != nil {
				result.Devices.Results[i].ShareID = &anyShare
			}
		}
	}
	reply := allocationAnswer{Results: results, Steps: steps(allocator), Interrupted: budget.spent()}
	if err != nil {
		reply.Error = err.Error()
		reply.ErrorOnNode = errors.Is(err, structured.ErrFailedAllocationOnNode)
	}
	return reply
}

// ofSelectors sets those features that this version of Kubernetes has.
func ofSelectors(features structured.Features) cel.Features {
	var made cel.Features
	of, to := reflect.ValueOf(features), reflect.ValueOf(&made).Elem()
	for _, name := range []string{"ConsumableCapacity", "ListTypeAttributes"} {
		if on := of.FieldByName(name); on.IsValid() {
			to.FieldByName("Enable" + name).SetBool(on.Bool())
		}
	}
	return made
}

func (c *allocationCase) allocatedState() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, id := range c.AllocatedDevices {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	for _, id := range c.AllocatedShares {
		device := structured.MakeDeviceID(id[0], id[1], id[2])
		share := types.UID(id[3])
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, &share))
	}
	for _, used := range c.AllocatedAmounts {
		device := structured.MakeDeviceID(used.ID[0], used.ID[1], used.ID[2])
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, used.Capacity))
	}
	return state
}

// featuresNamed is the inverse of structured.Features.Set.
func featuresNamed(names []string) (structured.Features, error) {
	var features structured.Features
	fields := reflect.ValueOf(&features).Elem()
	for i := range fields.NumField() {
		one := structured.Features{}
		reflect.ValueOf(&one).Elem().Field(i).SetBool(true)
		fields.Field(i).SetBool(slices.Contains(names, one.Set().UnsortedList()[0]))
	}
	if unknown := sets.New(names...).Difference(features.Set()); unknown.Len() > 0 {
		return features, fmt.Errorf("unknown features %v", sets.List(unknown))
	}
	return features, nil
}

// steps reads NumAllocateOneInvocations, whose type is internal to the module.
func steps(allocator structured.Allocator) int64 {
	stats := reflect.ValueOf(allocator).MethodByName("GetStats").Call(nil)[0]
	return stats.FieldByName("NumAllocateOneInvocations").Int()
}

// stepBudget ends a search by its number of steps, not by time, so that answers
// do not depend on the machine: the allocator asks Err once in each step.
type stepBudget struct {
	context.Context
	left    int64
	limited bool
}

func (b *stepBudget) spent() bool { return b.limited && b.left < 0 }

func (b *stepBudget) Err() error {
	b.left--
	if b.spent() {
		return context.Canceled
	}
	return nil
}

// classes is the informer's lister, over a list.
type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}
