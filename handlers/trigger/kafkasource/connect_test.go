package kafkasource_test

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/kafka/kafkatest"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
)

// vault is a Secrets whose values can be changed.
type vault struct {
	mu     sync.Mutex
	values map[string]string
}

func (v *vault) set(name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.values == nil {
		v.values = make(map[string]string)
	}
	v.values[name] = value
}

func (v *vault) Resolve(ref trigger.SecretRef) (secret.Secret, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	value, ok := v.values[ref.Env]
	if !ok {
		return secret.Secret{}, errors.New(ref.Env + " is not set")
	}
	return secret.New(value), nil
}

func env(name string) trigger.SecretRef { return trigger.SecretRef{Env: "MILLRACE_TRIGGER_" + name} }

// A trigger with brokers of its own has nothing of the installation's access, and every
// thing that can be wrong with its own has a code, and mends without a restart.
func TestSecretsThatAreMendedWhileTheTriggerRuns(t *testing.T) {
	t.Parallel()
	authority := kafkatest.NewAuthority(t)
	addrs := testenv.Broker(t, testenv.WithBrokerConfig(func(cfg *embedded.BrokerConfig) {
		cfg.TLS = authority.Server
		cfg.Users = []embedded.BrokerUser{{Mechanism: "SCRAM-SHA-512", Name: "user", Password: "pass"}}
	}))
	b := newBench(t, testenv.Broker(t)) // the installation's own brokers are others
	secrets := &vault{}
	b.config.Secrets = secrets
	r := b.run(b.compile(func(k *trigger.Kafka) {
		k.Brokers = addrs
		k.TLS = trigger.TLS{Enabled: true, CA: env("CA"), Cert: env("CERT"), Key: env("KEY")}
		k.SASL = trigger.SASL{Mechanism: "SCRAM-SHA-512", Username: "user", Password: env("PASSWORD")}
	}), 0)
	// The group may say so before the brokers have been looked for the first time.
	m := r.until("a secret is missing", func(m trigger.MemberReport) bool {
		return m.State == trigger.StateError && codeOf(m.Cause) == "secret_unavailable" && m.Attempts > 0 && !m.NextTry.IsZero()
	})
	assert.Contains(t, m.Cause.Message, "MILLRACE_TRIGGER_CA is not set")

	read := func(path string) string {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(content)
	}
	secrets.set("MILLRACE_TRIGGER_CERT", read(authority.Client.CertFile))
	secrets.set("MILLRACE_TRIGGER_KEY", read(authority.Client.KeyFile))
	secrets.set("MILLRACE_TRIGGER_PASSWORD", "canary")
	secrets.set("MILLRACE_TRIGGER_CA", read(kafkatest.NewAuthority(t).Client.CAFile))
	r.memberIs(trigger.StateError, "tls_failed")
	secrets.set("MILLRACE_TRIGGER_CA", read(authority.Client.CAFile))
	// Kafka says authentication_failed; the embedded broker hangs up.
	m = r.memberIs(trigger.StateError, "connection_closed")
	assert.NotContains(t, m.Cause.Message, "canary")
	secrets.set("MILLRACE_TRIGGER_PASSWORD", "pass")
	r.memberIs(trigger.StateError, "topic_missing") // it is in
}

func TestTLSWhereThereIsNone(t *testing.T) {
	t.Parallel()
	b := newBench(t, testenv.Broker(t))
	b.config.Installation.DialTimeout = 200 * time.Millisecond // nobody answers
	m := b.run(b.compile(func(k *trigger.Kafka) { k.Brokers, k.TLS = b.addrs, trigger.TLS{Enabled: true} }), 0).
		memberIs(trigger.StateError, "tls_failed")
	assert.NotContains(t, m.Cause.Hint, "installation")
}

// A broker that is not there yet, or goes away for a while, is waited for. Nothing is lost
// over it, and nothing else is needed.
func TestBrokersThatComeAndGo(t *testing.T) {
	t.Parallel()
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())
	b := newBench(t, []string{addr})
	r := b.run(b.compile(nil), 0)
	m := r.memberIs(trigger.StateError, "broker_unreachable")
	assert.Contains(t, m.Cause.Message, addr)
	assert.Contains(t, m.Cause.Hint, "installation", "whose settings to look at")

	dir := t.TempDir()
	start := func() *embedded.Broker {
		return testenv.StartBroker(t, testenv.WithBrokerDir(dir), testenv.WithBrokerConfig(func(cfg *embedded.BrokerConfig) { cfg.Listen = addr }))
	}
	broker := start()
	b.create(1)
	b.publish(0, "a0")
	b.has(b.topic, 0, "a0")
	r.memberIs(trigger.StateRunning, "")
	b.committedIs(0, 1)
	require.NoError(t, broker.Close())
	r.memberIs(trigger.StateError, "broker_unreachable")
	start()
	b.publish(0, "a1")
	b.has(b.topic, 0, "a0", "a1")
	r.memberIs(trigger.StateRunning, "")
	b.committedIs(0, 2)
}

// An account that may not read says so; another topic of the trigger goes on.
func TestTopicsThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "user", "pass"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	b := newBench(t, cluster.ListenAddrs())
	secrets := &vault{}
	secrets.set("MILLRACE_TRIGGER_PASSWORD", "pass")
	b.config.Secrets = secrets
	require.NoError(t, cluster.CreateTopic(b.topic, 1, nil))
	m := b.run(b.compile(func(k *trigger.Kafka) {
		k.Brokers = b.addrs
		k.SASL = trigger.SASL{Mechanism: "PLAIN", Username: "user", Password: env("PASSWORD")}
	}), 0).memberIs(trigger.StateError, "not_authorized")
	assert.NotEmpty(t, m.Cause.Hint)
}

// A group whose members speak another protocol does not take the trigger in, and does
// once they are gone.
func TestGroupOfAnotherProtocol(t *testing.T) {
	t.Parallel()
	b := newBench(t, testenv.Broker(t))
	b.create(1)
	b.publish(0, "a0")
	stranger := b.stranger()
	r := b.run(b.compile(nil), 0)
	m := r.memberIs(trigger.StateError, "group_refused")
	assert.Contains(t, m.Cause.Message, b.group)
	stranger()
	b.has(b.topic, 0, "a0")
	r.memberIs(trigger.StateRunning, "")
}
