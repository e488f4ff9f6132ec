// Package realkube runs a real Kubernetes API server and its etcd for tests, without
// containers: both are built from their Go modules (tools/kube), once per user, and run on
// loopback.
//
// There is nothing else of Kubernetes: no scheduler, no controllers, no nodes. Package
// kubetest has small ones that work against it.
//
// # Crash behaviour
//
// Both processes die with the program that started them. etcd does not sync to the disk:
// its data outlive SIGKILL, not a power loss.
package realkube
