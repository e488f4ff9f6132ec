package configs

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/limits"
)

// Limit configures one limit. Its name is its key in Coordinator.Limits.
type Limit struct {
	Per         string      `key:"per" oneof:"user,tenant,key" doc:"What the limit counts by: the user within the tenant, the tenant, or the value of an expression."`
	Key         string      `key:"key" unset:"not used" doc:"The expression whose value is the key, where per is key, such as labels.team. What gives nothing takes the request out of the limit."`
	When        string      `key:"when" unset:"all requests" doc:"The expression that says which requests the limit is for."`
	Rate        limits.Rate `key:"rate" unset:"no limit of rate" doc:"How many executions with one key are admitted, per duration: 100/s, 5/1m, 1000/12h."`
	Burst       int         `key:"burst" doc:"How many may be admitted at once after a pause; 0 is the number in the rate."`
	Concurrency int         `key:"concurrency" doc:"How many executions with one key may be scheduled or running at once; 0 is any number."`
	Action      string      `key:"action" oneof:"queue,reject" doc:"What is done with an execution that the rate does not let through now: it waits, or it is rejected with the time after which to ask again."`
}

// QueueDepth bounds the admission queue.
type QueueDepth struct {
	User  int `key:"user" doc:"The most executions of one user that wait at once; 0 is any number."`
	Total int `key:"total" doc:"The most executions that wait at once; 0 is any number."`
}

// The bounds of what configures the coordinator.
const (
	maxQueue  = 1_000_000_000
	minWeight = 0.01
	maxWeight = 1000
)

// LimitDefinitions returns the limits that are configured, by name.
func (c Config) LimitDefinitions() []limits.Definition {
	var all []limits.Definition
	for _, name := range slices.Sorted(maps.Keys(c.Coordinator.Limits)) {
		l := c.Coordinator.Limits[name]
		all = append(all, limits.Definition{
			Name: name, Per: l.Per, Key: l.Key, When: l.When, Rate: l.Rate, Burst: l.Burst,
			Concurrency: l.Concurrency, Action: limits.Action(l.Action),
		})
	}
	return all
}

func (v *validation) class(path string, c Class) {
	number(v, path+".slots", c.Slots, 0, maxSlots)
	number(v, path+".cpu", c.CPU, 0, maxCores*1000)
	number(v, path+".memory", c.Memory, 0, maxMemory)
	number(v, path+".gpus", c.GPUs, 0, maxGPUs)
}

// limits compiles the limits. What is not one of the choices has been reported.
func (v *validation) limits() {
	_, err := limits.Compile(v.c.LimitDefinitions())
	var invalid *limits.InvalidError
	if !errors.As(err, &invalid) {
		return
	}
	for _, f := range invalid.Faults {
		path := strings.TrimSuffix("coordinator.limits."+f.Limit+"."+f.Field, ".")
		if !slices.ContainsFunc(v.found, func(known Fault) bool { return known.Path == path }) {
			v.found.add(v.originOf(path), path, "%s", f.Err)
		}
	}
}

// originOf returns where a setting came from, and for a section where the first of
// its settings did.
func (v *validation) originOf(path string) string {
	if origin := v.origins[path]; origin != "" {
		return origin
	}
	for _, f := range v.c.fields() {
		if strings.HasPrefix(f.Path, path+".") && v.origins[f.Path] != "" {
			return v.origins[f.Path]
		}
	}
	return ""
}

func (v *validation) weights() {
	for _, user := range slices.Sorted(maps.Keys(v.c.Coordinator.Weights)) {
		weight := v.c.Coordinator.Weights[user]
		if tenant, name, ok := strings.Cut(user, "/"); !ok || tenant == "" || name == "" {
			v.fault("coordinator.weights", "%q is not a user: want tenant/user, such as %s/ada", user, "default")
		}
		if math.IsNaN(weight) || weight < minWeight || weight > maxWeight {
			v.fault("coordinator.weights", "%s must be between %v and %v, not %v", user, minWeight, maxWeight, weight)
		}
	}
}
