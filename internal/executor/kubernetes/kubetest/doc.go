// Package kubetest gives tests a Kubernetes cluster without containers and images: an API
// server, the controllers that matter, and nodes that run the containers of pods as real
// processes of this machine.
//
//	c := kubetest.Start(t)          // served API, or a real one with MILLRACE_TEST_K8S=1
//	c.AddNode(t, kubetest.Node{})
//	client := c.Client(t)
//
// # Parts
//
// Package apiserver serves a subset of the API from memory; package control has a
// scheduler and garbage collectors; package kubelet runs pods; package faults stands
// before the API server and breaks calls by command.
package kubetest
