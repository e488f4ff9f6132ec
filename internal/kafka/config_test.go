package kafka_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/kafkatest"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/topics"
)

func TestConfigReportsEveryFaultWithItsPath(t *testing.T) {
	t.Parallel()
	valid := func() kafka.Config { return kafka.Config{Brokers: []string{"localhost:9092"}} }
	for name, test := range map[string]struct {
		change func(*kafka.Config)
		want   []string
	}{
		"nothing":      {func(c *kafka.Config) { c.Brokers = nil }, []string{"kafka.brokers:"}},
		"no port":      {func(c *kafka.Config) { c.Brokers = []string{"a:1", "b", ":3"} }, []string{"kafka.brokers[1]:", "kafka.brokers[2]:"}},
		"tls disabled": {func(c *kafka.Config) { c.TLS.CAFile, c.TLS.ServerName = "ca", "n" }, []string{"kafka.tls.ca_file:", "kafka.tls.server_name:"}},
		"half a pair":  {func(c *kafka.Config) { c.TLS = kafka.TLSConfig{Enabled: true, CertFile: "c"} }, []string{"kafka.tls.key_file:"}},
		"other half":   {func(c *kafka.Config) { c.TLS = kafka.TLSConfig{Enabled: true, KeyFile: "k"} }, []string{"kafka.tls.cert_file:"}},
		"mechanism":    {func(c *kafka.Config) { c.SASL.Mechanism = "GSSAPI" }, []string{"kafka.sasl.mechanism:"}},
		"no mechanism": {func(c *kafka.Config) { c.SASL.Password = secret.New("x") }, []string{"kafka.sasl.password:"}},
		"scram":        {func(c *kafka.Config) { c.SASL.Mechanism = kafka.MechanismScramSHA512 }, []string{"kafka.sasl.password:", "kafka.sasl.username:"}},
		"bearer":       {func(c *kafka.Config) { c.SASL.Mechanism = kafka.MechanismOAuthBearer }, []string{"kafka.sasl.token:"}},
		"two tokens": {func(c *kafka.Config) {
			c.SASL = kafka.SASLConfig{Mechanism: kafka.MechanismOAuthBearer, Token: secret.New("a"), TokenFile: "b"}
		}, []string{"kafka.sasl.token:"}},
		"timings": {func(c *kafka.Config) { c.HeartbeatInterval, c.DialTimeout = time.Minute, -1 }, []string{"kafka.dial_timeout:", "kafka.heartbeat_interval:"}},
		"all at once": {func(c *kafka.Config) {
			c.Brokers, c.SASL.Mechanism, c.TLS.KeyFile = nil, "x", "k"
		}, []string{"kafka.brokers:", "kafka.sasl.mechanism:", "kafka.tls.key_file:"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, valid().Validate())
			cfg := valid()
			test.change(&cfg)
			err := cfg.Validate()
			require.Error(t, err)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(test.want), err)
			for i, want := range test.want {
				assert.True(t, strings.HasPrefix(lines[i], want), "%q should begin with %q", lines[i], want)
			}
			_, err = cfg.Options()
			require.Error(t, err)
		})
	}
}

func TestConfigNeverPrintsItsSecrets(t *testing.T) {
	t.Parallel()
	cfg := kafka.Config{SASL: kafka.SASLConfig{Password: secret.New("canary"), Token: secret.New("canary")}}
	encoded, err := json.Marshal(cfg)
	require.NoError(t, err)
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", cfg, "password", cfg.SASL.Password)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %q", cfg, cfg, cfg, cfg.SASL), string(encoded), logged.String()} {
		require.NotContains(t, text, "canary")
	}
}

func TestMissingFilesAreNamed(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for path, tlsConfig := range map[string]kafka.TLSConfig{
		"kafka.tls.ca_file: open":                       {Enabled: true, CAFile: missing},
		"kafka.tls.ca_file: " + empty + " holds no":     {Enabled: true, CAFile: empty},
		"kafka.tls.cert_file: open " + missing + ": no": {Enabled: true, CertFile: missing, KeyFile: missing},
	} {
		_, err := kafka.Config{Brokers: []string{"a:1"}, TLS: tlsConfig}.Options()
		require.ErrorContains(t, err, path)
	}
}

// requireEverything proves that every kind of client gets through with cfg.
func requireEverything(t *testing.T, f *fake) {
	t.Helper()
	admin, err := kafka.NewAdmin(f.cfg)
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.Ping(t.Context()))
	f.publish("one", "a", "b")
	require.NoError(t, f.publisher(kafka.PublisherConfig{}).Publish("one", message.NewMessage("u", []byte("c"))))
	require.Equal(t, []string{"a", "b", "c"}, f.read("one", 3)[0])
	_, ch := f.subscribe("one", nil)
	for range 3 {
		receive(t, ch).Ack()
	}
}

func TestTLSAndSASLForEveryClient(t *testing.T) {
	t.Parallel()
	ca := kafkatest.NewAuthority(t)
	mutual, trusted := ca.Server, ca.Client
	for _, mechanism := range []string{kafka.MechanismPlain, kafka.MechanismScramSHA256, kafka.MechanismScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, kfake.TLS(mutual), kfake.EnableSASL(), kfake.Superuser(mechanism, "user", "pass"))
			f.cfg.TLS = trusted
			f.cfg.SASL = kafka.SASLConfig{Mechanism: mechanism, Username: "user", Password: secret.New("pass")}
			requireEverything(t, f)

			wrong := f.cfg
			wrong.SASL.Password = secret.New("canary")
			err := ping(t, wrong)
			require.ErrorContains(t, err, "kafka.sasl")
			require.ErrorContains(t, err, wrong.Brokers[0])
			require.NotContains(t, err.Error(), "canary")
		})
	}
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, kfake.TLS(mutual))
		f.cfg.TLS = trusted
		require.NoError(t, ping(t, f.cfg))
		for name, change := range map[string]func(*kafka.TLSConfig){
			"no trust":       func(c *kafka.TLSConfig) { c.CAFile = kafkatest.NewAuthority(t).Client.CAFile },
			"another name":   func(c *kafka.TLSConfig) { c.ServerName = "broker.example" },
			"no certificate": func(c *kafka.TLSConfig) { c.CertFile, c.KeyFile = "", "" },
			"in the clear":   func(c *kafka.TLSConfig) { *c = kafka.TLSConfig{} },
		} {
			cfg := f.cfg
			change(&cfg.TLS)
			require.ErrorContains(t, ping(t, cfg), cfg.Brokers[0], name)
		}
	})
}

func ping(t *testing.T, cfg kafka.Config) error {
	admin, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	defer admin.Close()
	return admin.Ping(t.Context())
}

// The embedded broker knows no OAUTHBEARER, so the test answers in its place
// and looks at what the client says.
func TestOAuthBearerSendsTheTokenOfTheMoment(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	said := make(chan string, 16)
	f.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.SupportedMechanisms = []string{req.(*kmsg.SASLHandshakeRequest).Mechanism}
		return resp, nil, true
	})
	f.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		said <- string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		return req.ResponseKind(), nil, true
	})
	file := filepath.Join(t.TempDir(), "token")
	f.cfg.SASL = kafka.SASLConfig{Mechanism: kafka.MechanismOAuthBearer, TokenFile: file}
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		require.NoError(t, ping(t, f.cfg))
		require.Contains(t, <-said, "auth=Bearer "+token+"\x01")
	}
	require.NoError(t, os.Remove(file))
	require.ErrorContains(t, ping(t, f.cfg), "kafka.sasl.token_file")
	f.cfg.SASL = kafka.SASLConfig{Mechanism: kafka.MechanismOAuthBearer, Token: secret.New("third")}
	require.NoError(t, ping(t, f.cfg))
	require.Contains(t, <-said, "auth=Bearer third\x01")
}

func TestAdminEnsuresTopicsWithoutChangingThem(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	admin, err := kafka.NewAdmin(f.cfg)
	require.NoError(t, err)
	defer admin.Close()
	wanted := []kafka.TopicConfig{
		{Name: "new", Partitions: 2, Configs: map[string]string{"retention.ms": "1000"}},
		{Name: "three", Partitions: 3},
	}
	reports, err := admin.EnsureTopics(t.Context(), wanted)
	require.NoError(t, err)
	require.Equal(t, []kafka.TopicReport{{Name: "new", Outcome: kafka.TopicCreated}, {Name: "three", Outcome: kafka.TopicExists}}, reports)
	wanted[0].Configs["retention.ms"] = "2000"
	wanted[1].Partitions = 2
	reports, err = admin.EnsureTopics(t.Context(), wanted)
	require.NoError(t, err)
	require.Equal(t, []kafka.TopicReport{
		{Name: "new", Outcome: kafka.TopicDiffers, Differences: []string{"retention.ms: 1000, not 2000"}},
		{Name: "three", Outcome: kafka.TopicDiffers, Differences: []string{"partitions: 3, not 2"}},
	}, reports)
	keeps, err := admin.Retention(t.Context(), "new", "nowhere")
	require.NoError(t, err)
	require.Equal(t, map[string]time.Duration{"new": time.Second}, keeps)
	list, err := admin.ListTopics(t.Context(), "new", "three")
	require.NoError(t, err)
	require.Equal(t, []int{2, 3}, []int{list[0].Partitions, list[1].Partitions})
	require.NotZero(t, list[0].ID)

	reports, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "bad", Partitions: 1, ReplicationFactor: 3}, {Name: "good", Partitions: 1}})
	require.ErrorContains(t, err, "create topic bad")
	require.Equal(t, []kafka.TopicOutcome{kafka.TopicFailed, kafka.TopicCreated}, []kafka.TopicOutcome{reports[0].Outcome, reports[1].Outcome})

	version, err := admin.Version(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `v\d+\.\d+`, version)

	f.Close()
	require.ErrorContains(t, admin.Ping(t.Context()), "reach kafka at "+f.cfg.Brokers[0])
}

func TestTailFailsWhereAGroupWouldStop(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.publish("one", "0")
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange, Count: -1})
	tail, err := kafka.NewTail(t.Context(), f.cfg, kafka.TailConfig{Topics: []string{"one"}, From: kafka.StartEarliest})
	require.NoError(t, err)
	defer tail.Close()
	err = tail.Run(t.Context(), func(topics.Record) error { return nil })
	var outOfRange *kafka.OutOfRangeError
	require.ErrorAs(t, err, &outOfRange)
	require.Zero(t, outOfRange.Offset)
	tail.Close()
	require.ErrorIs(t, tail.Run(t.Context(), nil), kafka.ErrClosed)
}

// Any timeouts that the settings allow make a subscriber that starts.
func TestDrainingFitsIntoShortSessions(t *testing.T) {
	t.Parallel()
	for session, want := range map[time.Duration]time.Duration{
		6 * time.Second: 4 * time.Second, 15 * time.Second: 10 * time.Second, time.Minute: 10 * time.Second,
	} {
		base := kafka.Config{Brokers: []string{"127.0.0.1:1"}, SessionTimeout: session}
		sc := kafka.SubscriberConfig{Group: "g"}.WithDefaults(base)
		require.Equal(t, want, sc.DrainTimeout)
		require.NoError(t, sc.Validate(base))
	}
	sc := kafka.SubscriberConfig{Group: "g"}.WithDefaults(kafka.Config{RebalanceTimeout: 3 * time.Second})
	require.Equal(t, 2*time.Second, sc.DrainTimeout)
}
