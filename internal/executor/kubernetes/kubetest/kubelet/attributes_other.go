//go:build !linux

package kubelet

import "syscall"

// attributes returns nil: there are no namespaces.
func (k *Kubelet) attributes() *syscall.SysProcAttr { return nil }
