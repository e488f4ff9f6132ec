package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/retention"
)

// connections are what every role works with, made and checked before anything is
// assembled, so that their faults are reported in plain words.
type connections struct {
	pool  *pgxpool.Pool
	kafka kafka.Config
	// admin is nil in a process without Kafka.
	admin *kafka.Admin
	// cluster is nil in a process that makes no pods.
	cluster *cluster
	// unused closes what was made, in case that the program cannot be assembled and
	// so is never stopped either. fx makes one thing at a time.
	unused []func() error
}

// KafkaConfig translates the settings for the transport.
func KafkaConfig(cfg configs.Config, log *slog.Logger) kafka.Config {
	k := cfg.Kafka
	return kafka.Config{
		Brokers: k.Brokers, ClientID: k.ClientID, DialTimeout: k.DialTimeout,
		SessionTimeout: k.SessionTimeout, HeartbeatInterval: k.HeartbeatInterval, RebalanceTimeout: k.RebalanceTimeout,
		TLS: kafka.TLSConfig{
			Enabled: k.TLS.Enabled, CAFile: k.TLS.CAFile, CertFile: k.TLS.CertFile, KeyFile: k.TLS.KeyFile,
			ServerName: k.TLS.ServerName,
		},
		SASL: kafka.SASLConfig{
			Mechanism: k.SASL.Mechanism, Username: k.SASL.Username, Password: k.SASL.Password,
			Token: k.SASL.Token, TokenFile: k.SASL.TokenFile,
		},
		Logger: log,
	}
}

// PostgresConfig translates the settings for the database.
func PostgresConfig(cfg configs.Config) postgres.Config {
	p := cfg.Postgres
	return postgres.Config{DSN: p.DSN, MaxConns: p.MaxConns, MinConns: p.MinConns, ConnectTimeout: p.ConnectTimeout}
}

// connect waits for the servers until the start deadline and checks schema and
// topics.
func connect(ctx context.Context, cfg configs.Config, o *options) (*connections, error) {
	began := time.Now()
	pool, err := postgres.WaitReady(ctx, PostgresConfig(cfg), cfg.StartDeadline, func(err error, wait time.Duration) {
		o.log.WarnContext(ctx, "PostgreSQL does not answer yet", "cause", err, "next_try_in", wait)
	})
	if err != nil {
		return nil, err
	}
	c := &connections{pool: pool, kafka: KafkaConfig(cfg, o.log)}
	if err := c.prepare(ctx, cfg, o, cfg.StartDeadline-time.Since(began)); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *connections) prepare(ctx context.Context, cfg configs.Config, o *options, within time.Duration) error {
	if err := c.schema(ctx, o); err != nil {
		return err
	}
	if UsesCluster(cfg) {
		began := time.Now()
		cluster, err := connectCluster(ctx, cfg, c.pool, within, o.log)
		if err != nil {
			return err
		}
		c.cluster = cluster
		within -= time.Since(began)
	}
	if cfg.Brokerless() {
		o.log.WarnContext(ctx, "this process runs without Kafka", "notice", withoutKafka, "roles", cfg.Roles)
		return nil
	}
	admin, err := kafka.NewAdmin(c.kafka)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	c.admin = admin
	if err := waitForKafka(ctx, admin, within, o.log); err != nil {
		return err
	}
	if err := EnsureTopics(ctx, admin, cfg); err != nil {
		return err
	}
	for _, warning := range WindowWarnings(ctx, admin, cfg) {
		o.log.WarnContext(ctx, "the window of the inbox is too short", "cause", warning)
	}
	for _, warning := range TimeWarnings(ctx, admin, cfg) {
		o.log.WarnContext(ctx, "a topic keeps the time of its producers", "cause", warning)
	}
	return nil
}

// WindowWarnings compares how long consumers remember events with how long these
// can be met again, and says what to change. Topics that the broker does not tell
// about count as configured.
func WindowWarnings(ctx context.Context, admin *kafka.Admin, cfg configs.Config) []string {
	topics := make(map[string]time.Duration, len(cfg.Topics))
	for _, table := range cfg.Topics {
		topics[table.Name] = table.Retention
	}
	// Without the right to describe topics that is all there is to know.
	if real, err := admin.Retention(ctx, slices.Sorted(maps.Keys(topics))...); err == nil {
		maps.Copy(topics, real)
	}
	return retention.Window{Inbox: cfg.Retention.Inbox, Outbox: cfg.Retention.Outbox, Topics: topics}.Check()
}

func (c *connections) schema(ctx context.Context, o *options) error {
	if !o.migrate {
		return postgres.CheckCurrent(ctx, c.pool)
	}
	applied, err := postgres.Migrate(ctx, c.pool)
	if err != nil {
		return err
	}
	if len(applied) > 0 {
		o.log.InfoContext(ctx, "schema migrated", "migrations", len(applied))
	}
	return nil
}

// waitForKafka pings the brokers until one answers or the deadline has passed.
func waitForKafka(ctx context.Context, admin *kafka.Admin, within time.Duration, log *slog.Logger) error {
	deadline := time.Now().Add(within)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var last error
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := admin.Ping(ctx)
		if err == nil {
			return nil
		}
		// A try that the deadline has cut short says nothing about Kafka; its context may not
		// have heard of the deadline yet.
		late := ctx.Err() != nil || !time.Now().Before(deadline)
		if !late || last == nil {
			last = err
		}
		if late {
			return fmt.Errorf("kafka did not answer within the start deadline: %w", last)
		}
		log.WarnContext(ctx, "Kafka does not answer yet", "cause", err, "next_try_in", wait)
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafka did not answer within the start deadline: %w", last)
		case <-time.After(wait):
		}
	}
}

// EnsureTopics creates the configured topics that do not exist.
func EnsureTopics(ctx context.Context, admin *kafka.Admin, cfg configs.Config) error {
	if _, err := admin.EnsureTopics(ctx, TopicConfigs(cfg)); err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	return nil
}

// TopicConfigs are the configured topics as the transport creates them.
func TopicConfigs(cfg configs.Config) []kafka.TopicConfig {
	naming := cfg.TopicNaming()
	specs := cfg.TopicSpecs()
	list := make([]kafka.TopicConfig, len(specs))
	for i, spec := range specs {
		list[i] = kafka.TopicConfig{
			Name: naming.Physical(spec.Topic), Partitions: spec.Partitions,
			ReplicationFactor: cfg.Kafka.ReplicationFactor,
			Configs:           map[string]string{"retention.ms": strconv.FormatInt(spec.Retention.Milliseconds(), 10)},
		}
		if spec.AppendTime {
			list[i].Configs[kafka.TopicTimestampType] = kafka.LogAppendTime
		}
	}
	return list
}

// TimeWarnings names the topics whose records should carry the broker's time and carry
// that of their producers, by a setting that somebody else made, and says what to change.
// Topics that the broker does not tell about count as they should be.
func TimeWarnings(ctx context.Context, admin *kafka.Admin, cfg configs.Config) []string {
	naming := cfg.TopicNaming()
	var names []string
	for _, spec := range cfg.TopicSpecs() {
		if spec.AppendTime {
			names = append(names, naming.Physical(spec.Topic))
		}
	}
	types, err := admin.TimestampTypes(ctx, names...)
	if err != nil {
		return nil // without the right to describe topics there is nothing to say
	}
	var warnings []string
	for _, name := range names {
		if is, known := types[name]; known && is != kafka.LogAppendTime {
			warnings = append(warnings, fmt.Sprintf(
				"%s has %s=%s: whether an event claims to come from the future is judged by its producer's clock, so one with a wrong clock may win over the others: set %s on the topic",
				name, kafka.TopicTimestampType, is, kafka.LogAppendTime))
		}
	}
	return warnings
}

// abandon closes what was made for a program that cannot be assembled.
func (c *connections) abandon() error {
	var errs []error
	for _, done := range slices.Backward(c.unused) {
		errs = append(errs, done())
	}
	return errors.Join(errs...)
}

func (c *connections) close() {
	if c.admin != nil {
		c.admin.Close()
	}
	c.pool.Close()
}

// isInfrastructure tells the faults of Kafka and PostgreSQL from those of
// handlers.
func isInfrastructure(err error) bool {
	return postgres.IsInfrastructure(err) || kafka.IsInfrastructure(err)
}
