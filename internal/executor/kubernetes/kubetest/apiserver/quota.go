package apiserver

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Usage is what an object takes of quotas: its own count, and for pods what they request
// and are limited to.
func Usage(kind string, o any) corev1.ResourceList {
	one := resource.MustParse("1")
	switch o := o.(type) {
	case *corev1.Pod:
		usage := corev1.ResourceList{"count/pods": one}
		if o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			return usage // what has ended takes nothing but its place in the store
		}
		usage[corev1.ResourcePods] = one
		for _, c := range o.Spec.Containers {
			for name, quantity := range c.Resources.Requests {
				add(usage, "requests."+name, quantity)
				if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
					add(usage, name, quantity)
				}
			}
			for name, quantity := range c.Resources.Limits {
				add(usage, "limits."+name, quantity)
			}
		}
		return usage
	default:
		return corev1.ResourceList{corev1.ResourceName(kind): one, corev1.ResourceName("count/" + kind): one}
	}
}

func add(list corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	sum := list[name].DeepCopy()
	sum.Add(quantity)
	list[name] = sum
}

// admit holds a new object against the quotas of its namespace, and counts it. The store
// is locked.
func (s *Server) admit(res *servedKind, o object, dry bool) error {
	quotas := s.byName("resourcequotas")
	usage := Usage(res.GroupVersionResource.Resource, o)
	var counted []*corev1.ResourceQuota
	for k, stored := range s.store.objects[quotas] {
		quota, ok := stored.(*corev1.ResourceQuota)
		if !ok || k.namespace != o.GetNamespace() {
			continue
		}
		quota = clone(quota).(*corev1.ResourceQuota)
		var requested, used, limited, missing []string
		touched := false
		for name, hard := range quota.Status.Hard {
			delta, takes := usage[name]
			if !takes {
				if res.kind == "Pod" && compute(name) {
					missing = append(missing, string(name))
				}
				continue
			}
			touched = true
			sum := quota.Status.Used[name].DeepCopy()
			before := sum.String()
			sum.Add(delta)
			if sum.Cmp(hard) > 0 {
				requested = append(requested, fmt.Sprintf("%s=%s", name, delta.String()))
				used = append(used, fmt.Sprintf("%s=%s", name, before))
				limited = append(limited, fmt.Sprintf("%s=%s", name, hard.String()))
			}
			if quota.Status.Used == nil {
				quota.Status.Used = corev1.ResourceList{}
			}
			quota.Status.Used[name] = sum
		}
		if len(missing) > 0 {
			slices.Sort(missing)
			return apierrors.NewForbidden(res.GroupResource(), o.GetName(),
				fmt.Errorf("failed quota: %s: must specify %s for: %s", quota.Name, strings.Join(missing, ","), o.GetName()))
		}
		if len(requested) > 0 {
			slices.Sort(requested)
			slices.Sort(used)
			slices.Sort(limited)
			return apierrors.NewForbidden(res.GroupResource(), o.GetName(), fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
				quota.Name, strings.Join(requested, ","), strings.Join(used, ","), strings.Join(limited, ",")))
		}
		if touched {
			counted = append(counted, quota)
		}
	}
	for _, quota := range counted {
		if !dry {
			s.store.put(quotas, quota)
		}
	}
	return nil
}

// compute says whether pods have to name a resource on which there is a quota.
func compute(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		return true
	default:
		return false
	}
}
