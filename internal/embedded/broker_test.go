package embedded_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/millrace/millrace/internal/embedded"
)

func startBroker(t *testing.T, cfg embedded.BrokerConfig) *embedded.Broker {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	b, err := embedded.StartBroker(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func createTopic(t *testing.T, client *kgo.Client, topic string, partitions int32) {
	t.Helper()
	retention := "86400000"
	_, err := kadm.NewClient(client).CreateTopic(t.Context(), partitions, 1,
		map[string]*string{"retention.ms": &retention}, topic)
	require.NoError(t, err)
}

// consume reads n records from the start of the topic and returns their values
// by partition.
func consume(t *testing.T, addr, topic string, n int) map[int32][]string {
	t.Helper()
	client := newClient(t, addr, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := map[int32][]string{}
	for count := 0; count < n; {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], string(r.Value))
			count++
		})
	}
	return got
}

func TestBrokerKeepsWhatItAcknowledgedWhenItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "broker")
	want := map[int32][]string{}
	committed := map[int32]int64{}

	// Three lives, each killed without warning, the second and third on what the
	// one before has left.
	const lives, perLife = 3, 500
	for life := range lives {
		addr, kill := startKillable(t, "broker", dir)
		client := newClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		topic := fmt.Sprintf("topic-%d", life)
		createTopic(t, client, topic, 1)
		if life == 0 {
			createTopic(t, client, "events", 3)
		}
		for i := range perLife {
			p := int32(i % 3)
			value := fmt.Sprintf("life %d record %d", life, i)
			r := &kgo.Record{Topic: "events", Partition: p, Value: []byte(value)}
			require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
			want[p] = append(want[p], value)
			committed[p] = r.Offset + 1
		}
		adm := kadm.NewClient(client)
		offsets := kadm.Offsets{}
		for p, at := range committed {
			offsets.AddOffset("events", p, at, -1)
		}
		require.NoError(t, adm.CommitAllOffsets(t.Context(), "readers", offsets))
		client.Close()
		kill()
	}

	b := startBroker(t, embedded.BrokerConfig{DataDir: dir})
	adm := kadm.NewClient(newClient(t, b.Addrs()[0]))
	topics, err := adm.ListTopics(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"events", "topic-0", "topic-1", "topic-2"}, topics.Names())
	fetched, err := adm.FetchOffsets(t.Context(), "readers")
	require.NoError(t, err)
	for p, at := range committed {
		o, ok := fetched.Lookup("events", p)
		require.True(t, ok)
		assert.Equal(t, at, o.At, "committed offset of partition %d", p)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), "events")
	require.NoError(t, err)
	found := false
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" {
			found = true
			assert.Equal(t, "86400000", c.MaybeValue())
		}
	}
	assert.True(t, found, "retention.ms is kept")
	assert.Equal(t, want, consume(t, b.Addrs()[0], "events", lives*perLife))
}

func TestBrokerKeepsEverythingOverACleanRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startBroker(t, embedded.BrokerConfig{DataDir: dir})
	client := newClient(t, b.Addrs()[0])
	createTopic(t, client, "events", 1)
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "events", Value: []byte("one")}).FirstErr())
	client.Close()
	require.NoError(t, b.Close())

	b = startBroker(t, embedded.BrokerConfig{DataDir: dir})
	assert.Equal(t, map[int32][]string{0: {"one"}}, consume(t, b.Addrs()[0], "events", 1))
}

func TestBrokerRefusesADirectoryThatIsHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, kill := startKillable(t, "broker", dir)
	_, err := embedded.StartBroker(t.Context(), embedded.BrokerConfig{DataDir: dir, Listen: "127.0.0.1:0"})
	require.ErrorIs(t, err, embedded.ErrInUse)
	require.ErrorContains(t, err, dir)
	require.Regexp(t, `held by process \d+`, err.Error())

	kill()
	startBroker(t, embedded.BrokerConfig{DataDir: dir})
	_, err = embedded.StartBroker(t.Context(), embedded.BrokerConfig{DataDir: dir, Listen: "127.0.0.1:0"})
	require.ErrorIs(t, err, embedded.ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("held by this process (pid %d)", os.Getpid()))
}

func TestBrokerNamesATakenPortAndItsSetting(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	dir := t.TempDir()
	cfg := embedded.BrokerConfig{DataDir: dir, Listen: taken.Addr().String(), ListenSetting: "kafka.listen"}
	_, err = embedded.StartBroker(t.Context(), cfg)
	require.ErrorContains(t, err, "listen on "+taken.Addr().String()+": the port is taken")
	require.ErrorContains(t, err, "choose another address with kafka.listen")

	cfg.Listen = "127.0.0.1:0"
	startBroker(t, cfg) // the refused start gave the directory back
}

func TestBrokerCreatesNoTopicOnItsOwn(t *testing.T) {
	t.Parallel()
	b := startBroker(t, embedded.BrokerConfig{})
	client := newClient(t, b.Addrs()[0], kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "nobody-made-me", Value: []byte("x")}).FirstErr()
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

func TestBrokerAdvertisesWhatItIsTold(t *testing.T) {
	t.Parallel()
	_, err := embedded.StartBroker(t.Context(), embedded.BrokerConfig{Listen: "127.0.0.1:0", Advertise: "no-port"})
	require.ErrorContains(t, err, "no-port")

	b := startBroker(t, embedded.BrokerConfig{Advertise: "broker.example:9092"})
	assert.Equal(t, []string{"broker.example:9092"}, b.Addrs())
}

func TestBrokerWithTLSAndSCRAM(t *testing.T) {
	t.Parallel()
	cert, pool := selfSigned(t)
	b := startBroker(t, embedded.BrokerConfig{
		TLS:   &tls.Config{Certificates: []tls.Certificate{cert}},
		Users: []embedded.BrokerUser{{Mechanism: "SCRAM-SHA-256", Name: "ada", Password: "secret"}},
	})
	dial := kgo.DialTLSConfig(&tls.Config{RootCAs: pool})
	as := func(password string) error {
		client := newClient(t, b.Addrs()[0], dial, kgo.SASL(scram.Auth{User: "ada", Pass: password}.AsSha256Mechanism()))
		return client.Ping(t.Context())
	}
	require.NoError(t, as("secret"))
	require.Error(t, as("wrong"))
}

func TestBrokerLogsItsLifeCycleOnly(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := startBroker(t, embedded.BrokerConfig{Log: slog.New(slog.NewTextHandler(&out, nil))})
	client := newClient(t, b.Addrs()[0])
	createTopic(t, client, "events", 1)
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "events"}).FirstErr())
	client.Close()
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "closing twice is fine")
	assert.Equal(t, 2, bytes.Count(out.Bytes(), []byte("\n")), out.String())
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
