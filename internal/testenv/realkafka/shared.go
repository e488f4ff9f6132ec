package realkafka

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/testenv"
)

const (
	// addressEnv names a running cluster: its seed brokers, comma-separated.
	addressEnv = "MILLRACE_TEST_KAFKA"
	// realEnv has the tests start a cluster of their own: 1 beside what they do without,
	// only in its place.
	realEnv  = "MILLRACE_TEST_REAL"
	realOnly = "only"
)

// sharedCluster starts the cluster of the test binary at the first call. It is
// package state for the reason that testenv's is: tests have no other owner in
// common.
var sharedCluster = sync.OnceValues(func() ([]string, error) {
	dir, err := os.MkdirTemp("", "millrace-kafka-")
	if err != nil {
		return nil, err
	}
	c, err := Start(context.Background(), Config{DataDir: dir, Progress: os.Stderr})
	if err != nil {
		return nil, err // the directory is kept: it has the log
	}
	testenv.AtExit(func(context.Context) error {
		err := c.Close()
		_ = os.RemoveAll(dir)
		return err
	})
	return c.Addrs(), nil
})

// Shared returns the seed brokers of a real Apache Kafka that the tests of this
// binary share: that in MILLRACE_TEST_KAFKA, else, with MILLRACE_TEST_REAL, one
// started for the binary, whose TestMain must call testenv.Run. Without either
// it skips the test. Topics are not created on their own; tests name theirs so
// that they do not meet.
func Shared(t testing.TB) []string {
	t.Helper()
	if addrs := os.Getenv(addressEnv); addrs != "" {
		return strings.Split(addrs, ",")
	}
	Require(t)
	addrs, err := sharedCluster()
	if err != nil {
		t.Fatalf("realkafka: %v", err)
	}
	return addrs
}

// Available says whether Shared has a cluster to return.
func Available() bool { return os.Getenv(addressEnv) != "" || mayStart() }

// mayStart says whether tests may start clusters.
func mayStart() bool {
	set := os.Getenv(realEnv)
	return set == "1" || set == realOnly
}

// SkipOthers skips the test where MILLRACE_TEST_REAL=only asks for those on real clusters,
// after a run of all others: for tests on the embedded broker that take long.
func SkipOthers(t testing.TB) {
	t.Helper()
	if os.Getenv(realEnv) == realOnly {
		t.Skipf("is on the embedded broker: %s=%s leaves that out", realEnv, realOnly)
	}
}

// Require skips the test unless MILLRACE_TEST_REAL is 1 or only, for tests that start
// clusters of their own.
func Require(t testing.TB) {
	t.Helper()
	if !mayStart() {
		t.Skipf("needs a real Apache Kafka: set %s=1 to start one (or %s=host:port to use one)", realEnv, addressEnv)
	}
}
