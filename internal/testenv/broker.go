package testenv

import (
	"testing"

	"github.com/millrace/millrace/internal/embedded"
)

// BrokerOption changes the broker of a test.
type BrokerOption func(*embedded.BrokerConfig)

// WithBrokerDir keeps the broker's data in dir, so that a test can start it
// again. By default it is kept in memory.
func WithBrokerDir(dir string) BrokerOption {
	return func(cfg *embedded.BrokerConfig) { cfg.DataDir = dir }
}

// WithBrokerConfig changes anything else, such as TLS and users.
func WithBrokerConfig(change func(*embedded.BrokerConfig)) BrokerOption { return change }

// Broker starts an embedded broker for the test and returns its seed addresses.
// It is closed when the test ends.
func Broker(t testing.TB, opts ...BrokerOption) []string {
	t.Helper()
	return StartBroker(t, opts...).Addrs()
}

// StartBroker is Broker for tests that close the broker themselves: closing it
// twice is fine.
func StartBroker(t testing.TB, opts ...BrokerOption) *embedded.Broker {
	t.Helper()
	cfg := embedded.BrokerConfig{Listen: "127.0.0.1:0"}
	for _, opt := range opts {
		opt(&cfg)
	}
	b, err := embedded.StartBroker(t.Context(), cfg)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("testenv: close broker: %v", err)
		}
	})
	return b
}
