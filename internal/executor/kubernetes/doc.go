// Package kubernetes is the executor that runs attempts as pods.
//
// # One pod for each run of the work
//
// A pod is named after its execution and the attempt with which the run began
// (executor.Task.Origin), so creating it can be repeated when an answer is lost, by
// whoever holds the lease: the pod that there is is the answer. A pod does not end with
// its worker. The attempt that follows one whose worker was lost, or was shut down, has
// the same origin and finds the same pod, running or ended, and carries on with it: it
// reads the output from the beginning, and the end. So work of hours survives the restart
// of every worker, and an execution whose worker died is not run twice. An attempt that
// begins afresh (after a failure) has an origin of its own; it deletes the pods of earlier
// origins, and waits until they are gone, before it creates its own.
//
// # Leases
//
// The lease of an attempt is held by the worker that watches the pod. It fences reports,
// not the pod: a worker that has lost its lease stops watching and touches the pod no
// more. Each attempt writes its number on the pod, and one that finds a higher number
// there answers that its lease is lost.
//
// # Ordering, delivery and crashes
//
// The pod is kept until its end is recorded (Settle), and what nobody settles is found by
// comparing the pods that there are with the executions (the keeper, which one worker at
// a time runs). Output is handed over in the order of the container's log. Facts about
// pods are recorded once each (package pods).
package kubernetes
