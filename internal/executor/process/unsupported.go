//go:build !linux

package process

import (
	"context"
	"errors"
	"os"

	"github.com/millrace/millrace/internal/executor"
)

// errUnsupported: the guarantees of this package are made of Linux's means, and
// a weaker executor under the same name would break the promise of the lease.
var errUnsupported = errors.New("the process executor needs Linux")

type workdirs struct{}

func openWorkdirs(string) (*workdirs, error) { return nil, errUnsupported }

func (w *workdirs) close() error { return nil }

func findSandbox(Config) (string, error) { return "", errUnsupported }

func runShim() int { return 2 }

func runLaunch([]string) int { return 2 }

func exitNow(code int) { os.Exit(code) }

// Run is never reached: New fails on this system.
func (e *Executor) Run(context.Context, executor.Task, executor.Lease, executor.Sink) (executor.Result, error) {
	return executor.Result{}, errUnsupported
}

// Isolation fails on this system.
func Isolation(context.Context, Sandbox) ([]Feature, error) { return nil, errUnsupported }
