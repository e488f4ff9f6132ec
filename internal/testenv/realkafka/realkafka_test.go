package realkafka_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/testenv/realkafka"
)

func client(t *testing.T, addrs []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addrs...)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func start(t *testing.T, cfg realkafka.Config) *realkafka.Cluster {
	t.Helper()
	realkafka.Require(t)
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	cfg.Progress = os.Stderr
	began := time.Now()
	c, err := realkafka.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Logf("started after %s", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func produce(t *testing.T, cl *kgo.Client, topic string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i))}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
}

func consume(t *testing.T, addrs []string, topic string, n int) []string {
	t.Helper()
	cl := client(t, addrs, kgo.ConsumeTopics(topic))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for len(got) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

func numbers(n int) []string {
	var want []string
	for i := range n {
		want = append(want, strconv.Itoa(i))
	}
	return want
}

func TestOneBrokerOverItsFaults(t *testing.T) {
	c := start(t, realkafka.Config{})
	cl := client(t, c.Addrs(), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "nobody-made-me"}).FirstErr()
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)

	_, err = kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "events")
	require.NoError(t, err)
	produce(t, cl, "events", 0, 10)

	require.NoError(t, c.Kill(0))
	<-c.Exited(0)
	require.NoError(t, c.Restart(t.Context(), 0))
	produce(t, cl, "events", 10, 20)

	require.NoError(t, c.Pause(0))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.Error(t, client(t, c.Addrs()).Ping(ctx), "a paused broker does not answer")
	require.NoError(t, c.Resume(0))
	produce(t, cl, "events", 20, 30)

	began := time.Now()
	require.NoError(t, c.Stop(0))
	t.Logf("stopped after %s", time.Since(began).Round(time.Millisecond))
	require.NoError(t, c.Stop(0), "stopping twice is fine")
	began = time.Now()
	require.NoError(t, c.Restart(t.Context(), 0))
	t.Logf("restarted after %s", time.Since(began).Round(time.Millisecond))
	assert.Equal(t, numbers(30), consume(t, c.Addrs(), "events", 30))
}

func TestThreeBrokersOutliveOne(t *testing.T) {
	c := start(t, realkafka.Config{Brokers: 3, HeapMB: 256})
	cl := client(t, c.Addrs())
	_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 3, nil, "events")
	require.NoError(t, err)
	produce(t, cl, "events", 0, 10)
	require.NoError(t, c.Kill(1))
	produce(t, cl, "events", 10, 20)
	require.NoError(t, c.Restart(t.Context(), 1))
	produce(t, cl, "events", 20, 30)
	assert.Equal(t, numbers(30), consume(t, c.Addrs(), "events", 30))
}

func TestDataOfAnEarlierRunIsUsedAgain(t *testing.T) {
	dir := t.TempDir()
	c := start(t, realkafka.Config{DataDir: dir})
	cl := client(t, c.Addrs())
	_, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "events")
	require.NoError(t, err)
	produce(t, cl, "events", 0, 5)
	require.NoError(t, c.Close())
	c = start(t, realkafka.Config{DataDir: dir})
	assert.Equal(t, numbers(5), consume(t, c.Addrs(), "events", 5))
}

func TestSharedClusterServes(t *testing.T) {
	cl := client(t, realkafka.Shared(t))
	require.NoError(t, cl.Ping(t.Context()))
}

func TestSettingsThatKafkaRefusesAreExplained(t *testing.T) {
	realkafka.Require(t)
	_, err := realkafka.Start(t.Context(), realkafka.Config{DataDir: t.TempDir(),
		Settings: map[string]string{"num.partitions": "many"}})
	require.ErrorContains(t, err, "num.partitions")
}

func TestATakenPortIsNamed(t *testing.T) {
	realkafka.Require(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	_, err = realkafka.Start(t.Context(), realkafka.Config{DataDir: t.TempDir(), Port: port})
	require.ErrorContains(t, err, fmt.Sprintf("127.0.0.1:%d", port))
}

func TestBadInputIsRefusedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	_, err := realkafka.Start(t.Context(), realkafka.Config{DataDir: t.TempDir(), Brokers: 2})
	require.ErrorContains(t, err, "1 or 3")
	_, err = realkafka.Start(t.Context(), realkafka.Config{})
	require.ErrorContains(t, err, "no data directory")
	_, err = realkafka.Ensure(t.Context(), "4.2.0</version>", io.Discard)
	require.ErrorContains(t, err, "is not a version")
}

func TestEnsureUsesWhatIsThere(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv("MILLRACE_TEST_KAFKA_VERSION", "9.9.9")
	base, err := os.UserCacheDir()
	require.NoError(t, err)
	libs := filepath.Join(base, "millrace", "kafka-9.9.9", "libs")
	require.NoError(t, os.MkdirAll(libs, 0o755))
	got, err := realkafka.Ensure(t.Context(), "", io.Discard)
	require.NoError(t, err)
	assert.Equal(t, libs, got)
}

func TestEnsureExplainsAMissingMaven(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv("PATH", t.TempDir())
	_, err := realkafka.Ensure(t.Context(), "", nil)
	require.ErrorContains(t, err, "find Maven, which is needed")
}
