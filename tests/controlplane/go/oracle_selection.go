package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// selection asks what one selector says about each of some devices.
type selection struct {
	Expression string   `json:"expression"`
	Devices    []device `json:"devices"`
}

type device struct {
	Driver                   string                                                    `json:"driver"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
}

// selectionAnswer: CompileError stands for every device, else there is one outcome
// for each. MaxCost is the static estimate that the API server holds against its limit.
type selectionAnswer struct {
	CompileError string    `json:"compileError,omitempty"`
	MaxCost      uint64    `json:"maxCost,omitempty"`
	Outcomes     []verdict `json:"outcomes"`
}

type verdict struct {
	Match bool   `json:"match"`
	Error string `json:"error,omitempty"`
}

// answer compiles as the scheduler does: as a stored expression, in the newest environment.
func (s *selection) answer() any {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	compiled := compiler.CompileCELExpression(s.Expression, cel.Options{})
	if compiled.Error != nil {
		return selectionAnswer{CompileError: compiled.Error.Error()}
	}
	reply := selectionAnswer{MaxCost: compiled.MaxCost}
	for _, d := range s.Devices {
		match, _, err := compiled.DeviceMatches(context.Background(), cel.Device{
			Driver:                   d.Driver,
			AllowMultipleAllocations: d.AllowMultipleAllocations,
			Attributes:               d.Attributes,
			Capacity:                 d.Capacity,
		})
		said := verdict{Match: match}
		if err != nil {
			said.Error = err.Error()
		}
		reply.Outcomes = append(reply.Outcomes, said)
	}
	return reply
}
