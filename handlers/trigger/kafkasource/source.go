package kafkasource

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/trigger"
)

const (
	// sessionTimeout is long, since a process that dies is replaced under its own name.
	sessionTimeout    = 30 * time.Second
	heartbeatInterval = 3 * time.Second
	// fetchMaxWait weighs what a thousand idle triggers cost against how long a
	// partition that pauses waits behind its idle neighbours.
	fetchMaxWait = 500 * time.Millisecond
	// drainTimeout is how long Create may go on when a partition is taken.
	drainTimeout = 5 * time.Second
	// createTimeout bounds one Create: a database that does not answer is a stall that
	// shows.
	createTimeout = 20 * time.Second
	// surveyInterval is how often a healthy member looks whether its brokers and topics
	// are still there.
	surveyInterval = 5 * time.Second
)

// Secrets reads what a definition refers to; the error says which variable or file, and
// never the value.
type Secrets interface {
	Resolve(ref trigger.SecretRef) (secret.Secret, error)
}

// Config is what a Source works with. Creator and Secrets are required.
type Config struct {
	// Installation is how the installation reaches its own brokers. A trigger that
	// names no brokers reads from these, with their TLS and SASL.
	Installation kafka.Config
	Creator      ingest.Creator
	Secrets      Secrets
	// Positions returns the last reports of a trigger's partitions, whoever made them.
	// Nil: a group without offsets begins where the definition says.
	Positions func(ctx context.Context, uid string) ([]trigger.PartitionReport, error)
	// BackoffInitial and BackoffMax bound the pause of a stall. Default to 1 and 60 s.
	BackoffInitial, BackoffMax time.Duration
	// SurveyInterval is how often a member that is well looks after its brokers and
	// topics; one that is not does so after BackoffInitial, doubled each time. Defaults to
	// 5 s.
	SurveyInterval time.Duration
	// SessionTimeout and HeartbeatInterval are those of the groups. Default to 30 and
	// 3 s.
	SessionTimeout, HeartbeatInterval time.Duration
	// Log defaults to one that discards.
	Log *slog.Logger
}

// Source runs members of Kafka triggers. It is safe for concurrent use.
type Source struct{ cfg Config }

// New returns a Source.
func New(cfg Config) *Source {
	cfg.BackoffInitial = cmp.Or(cfg.BackoffInitial, time.Second)
	cfg.BackoffMax = cmp.Or(cfg.BackoffMax, max(time.Minute, cfg.BackoffInitial))
	cfg.SurveyInterval = cmp.Or(cfg.SurveyInterval, surveyInterval)
	cfg.SessionTimeout = cmp.Or(cfg.SessionTimeout, sessionTimeout)
	cfg.HeartbeatInterval = cmp.Or(cfg.HeartbeatInterval, heartbeatInterval)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{cfg: cfg}
}

// Run is one member of a trigger's group. It receives until ctx ends, and returns nil
// once nothing is in flight and the group has been left. Brokers that cannot be reached,
// topics that are missing and partitions that stand are reported and waited for; an error
// means that the definition cannot be run at all.
func (s *Source) Run(ctx context.Context, t *trigger.Compiled, number int, report func(trigger.MemberReport)) error {
	m, err := s.newMember(t, number, report)
	if err != nil {
		return fmt.Errorf("run kafka trigger %s: %w", t.ID, err)
	}
	m.run(ctx)
	return nil
}

// client says how a trigger's brokers are reached.
func (s *Source) client(t *trigger.Compiled) kafka.Config {
	c, k := s.cfg.Installation, t.Kafka
	if len(k.Brokers) > 0 {
		c.Brokers, c.Credentials = k.Brokers, s.credentials(k)
		c.TLS = kafka.TLSConfig{Enabled: k.TLS.Enabled, ServerName: k.TLS.ServerName}
		c.SASL = kafka.SASLConfig{Mechanism: k.SASL.Mechanism, Username: k.SASL.Username}
	}
	c.ClientID = "millrace-trigger-" + t.ID
	c.SessionTimeout, c.HeartbeatInterval, c.FetchMaxWait = s.cfg.SessionTimeout, s.cfg.HeartbeatInterval, fetchMaxWait
	c.Logger = s.cfg.Log.With("trigger", t.ID)
	return c
}

// credentials returns what reads a trigger's secrets, each time anew.
func (s *Source) credentials(k *trigger.Kafka) func() (kafka.Credentials, error) {
	return func() (kafka.Credentials, error) {
		var c kafka.Credentials
		var ca, cert, key secret.Secret
		for _, one := range []struct {
			field string
			ref   trigger.SecretRef
			into  *secret.Secret
		}{
			{"tls.ca", k.TLS.CA, &ca},
			{"tls.cert", k.TLS.Cert, &cert},
			{"tls.key", k.TLS.Key, &key},
			{"sasl.password", k.SASL.Password, &c.Password},
			{"sasl.token", k.SASL.Token, &c.Token},
		} {
			if one.ref.IsZero() {
				continue
			}
			value, err := s.cfg.Secrets.Resolve(one.ref)
			if err != nil {
				return kafka.Credentials{}, fmt.Errorf("%s: %w", one.field, err)
			}
			*one.into = value
		}
		c.CA, c.Cert, c.Key = []byte(ca.Reveal()), []byte(cert.Reveal()), []byte(key.Reveal())
		return c, nil
	}
}

// subscriber says how a member consumes. BatchSize is small where the rate is, so that
// one delivery never waits for more than what a tenth of a second lets through.
func (s *Source) subscriber(t *trigger.Compiled, number int) kafka.SubscriberConfig {
	k := t.Kafka
	batch := k.Batch
	if k.RateLimitPerSecond > 0 {
		batch = min(batch, burst(k.RateLimitPerSecond))
	}
	return kafka.SubscriberConfig{
		Group: k.Group, InstanceID: instanceID(t.UID, number), RememberTopics: true, ReadCommitted: true,
		BatchSize: batch, PrefetchRecords: k.PrefetchCount, PrefetchBytes: k.PrefetchBytes, PrefetchBoth: true,
		FetchBytes: k.MaxBytesPerFetch, StartFrom: kafka.StartFrom(k.From),
		BackoffInitial: s.cfg.BackoffInitial, BackoffMax: s.cfg.BackoffMax,
		DrainTimeout: min(drainTimeout, s.cfg.SessionTimeout/2),
	}
}

// instanceID names a member in its group.
func instanceID(uid string, number int) string { return fmt.Sprintf("millrace-%s-%d", uid, number) }

// burst is how many messages may come at once under a rate per second.
func burst(perSecond float64) int { return max(1, int(perSecond/10)) }
