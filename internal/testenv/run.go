package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// shared is what the tests of one binary share. It is package state because
// TestMain and the tests have nothing else in common.
var shared struct {
	sync.Mutex
	atExit []func(context.Context) error
}

// Run runs the tests, stops what they shared and, when all passed, fails if a
// goroutine is left. It does not return.
func Run(m *testing.M, leakOptions ...goleak.Option) {
	code := m.Run()
	if err := stopShared(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(leakOptions...); err != nil {
			fmt.Fprintln(os.Stderr, "testenv: goroutines leaked:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// AtExit has Run call stop after all tests, last registered first. It is for what
// the tests of a binary share.
func AtExit(stop func(context.Context) error) {
	shared.Lock()
	defer shared.Unlock()
	shared.atExit = append(shared.atExit, stop)
}

func stopShared(ctx context.Context) error {
	shared.Lock()
	defer shared.Unlock()
	var first error
	for i := len(shared.atExit) - 1; i >= 0; i-- {
		if err := shared.atExit[i](ctx); err != nil && first == nil {
			first = err
		}
	}
	shared.atExit = nil
	return first
}
