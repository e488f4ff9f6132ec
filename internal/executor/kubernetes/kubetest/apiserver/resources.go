package apiserver

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// servedKind is one kind of objects that is served.
type servedKind struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
	status     bool // has the subresource "status"
	short      []string
	// fields are what field selectors can name, besides name and namespace.
	fields func(obj object) map[string]string
	// virtual kinds are only created, and answered at once.
	virtual bool
}

func (r *servedKind) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.kind}
}

func (r *servedKind) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.kind) }

// resources is the subset of the API that is served.
func resources() []*servedKind {
	core := func(name, kind string, namespaced, status bool, short ...string) *servedKind {
		return &servedKind{
			GroupVersionResource: corev1.SchemeGroupVersion.WithResource(name),
			kind:                 kind, namespaced: namespaced, status: status, short: short,
		}
	}
	pods := core("pods", "Pod", true, true, "po")
	pods.fields = podFields
	events := core("events", "Event", true, false, "ev")
	events.fields = eventFields
	nodes := core("nodes", "Node", false, true, "no")
	nodes.fields = nodeFields
	namespaces := core("namespaces", "Namespace", false, true, "ns")
	namespaces.fields = namespaceFields
	return []*servedKind{
		namespaces, nodes, pods, events,
		core("configmaps", "ConfigMap", true, false, "cm"),
		core("secrets", "Secret", true, false),
		core("resourcequotas", "ResourceQuota", true, true, "quota"),
		core("serviceaccounts", "ServiceAccount", true, false, "sa"),
		{
			GroupVersionResource: networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
			kind:                 "NetworkPolicy", namespaced: true, short: []string{"netpol"},
		},
		{
			GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"),
			kind:                 "Lease", namespaced: true,
		},
		{
			GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"),
			kind:                 "SelfSubjectAccessReview", virtual: true,
		},
	}
}

func podFields(obj object) map[string]string {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		pod = new(corev1.Pod)
	}
	return map[string]string{
		"spec.nodeName":            pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             pod.Status.PodIP,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

func eventFields(obj object) map[string]string {
	event, ok := obj.(*corev1.Event)
	if !ok {
		event = new(corev1.Event)
	}
	return map[string]string{
		"involvedObject.kind":      event.InvolvedObject.Kind,
		"involvedObject.namespace": event.InvolvedObject.Namespace,
		"involvedObject.name":      event.InvolvedObject.Name,
		"involvedObject.uid":       string(event.InvolvedObject.UID),
		"reason":                   event.Reason,
		"type":                     event.Type,
	}
}

func nodeFields(obj object) map[string]string {
	node, ok := obj.(*corev1.Node)
	if !ok || !node.Spec.Unschedulable {
		return map[string]string{"spec.unschedulable": "false"}
	}
	return map[string]string{"spec.unschedulable": "true"}
}

func namespaceFields(obj object) map[string]string {
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		namespace = new(corev1.Namespace)
	}
	return map[string]string{"status.phase": string(namespace.Status.Phase)}
}
