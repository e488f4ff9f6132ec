// Package workloads runs the workloads of execution sagas (package sagas/execution) as pods.
//
// A pod and a ConfigMap have the name of the workload. The pod needs a value of the
// ConfigMap to start, so that the ConfigMap decides: deleting a workload replaces it by a
// tombstone, a ConfigMap of that name without the value. A pod whose creation arrives when all
// is over finds the tombstone and never starts.
//
// # Delivery and crashes
//
// All calls may come again, and may be cut off anywhere: each looks at what there is and goes
// on from there. Sweep removes pods that have arrived too late, and tombstones when nothing
// can be on its way any more.
package workloads
