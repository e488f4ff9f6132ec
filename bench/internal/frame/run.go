package frame

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
)

// adminTimeout bounds the making of a topic.
const adminTimeout = 30 * time.Second

// Kafka leads to the brokers of the run.
func (r *Run) Kafka() kafka.Config { return kafka.Config{Brokers: r.Brokers, Logger: r.Log} }

// Open opens a pool of connections to the database of the run.
func (r *Run) Open(ctx context.Context, name string) (*pgxpool.Pool, error) {
	return postgres.Open(ctx, postgres.Config{DSN: secret.New(r.DSN), ApplicationName: name})
}

// CreateTopic makes a topic of this run and returns its whole name.
func (r *Run) CreateTopic(ctx context.Context, name string, partitions int) (string, error) {
	admin, err := kafka.NewAdmin(r.Kafka())
	if err != nil {
		return "", err
	}
	defer admin.Close()
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	name = "bench_" + name + "_" + r.Suffix
	_, err = admin.EnsureTopics(ctx, []kafka.TopicConfig{{Name: name, Partitions: int32(partitions), ReplicationFactor: -1}})
	return name, err
}

// Bench is a run whose parts share a database with its tables and a publisher.
type Bench struct {
	*Run
	Pool      *pgxpool.Pool
	Publisher *kafka.Publisher
}

// Bench prepares the database, opens both, and closes them once use has returned.
func (r *Run) Bench(ctx context.Context, use func(*Bench) error) (err error) {
	if err := postgres.MigrateDSN(ctx, r.DSN); err != nil {
		return err
	}
	b := &Bench{Run: r}
	if b.Pool, err = r.Open(ctx, "bench"); err != nil {
		return err
	}
	defer b.Pool.Close()
	if b.Publisher, err = kafka.NewPublisher(r.Kafka(), kafka.PublisherConfig{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Publisher.Close()) }()
	return use(b)
}

// Measurement makes one part of a report, under its name in JSON.
type Measurement struct {
	Name string
	// Wanted is false when flags leave the part out.
	Wanted  bool
	Measure func(context.Context) (Part, error)
}

// Measure makes the parts that are wanted, one after the other, and reports them. The
// first that fails ends it.
func (r *Run) Measure(ctx context.Context, parts ...Measurement) error {
	for _, part := range parts {
		if !part.Wanted {
			continue
		}
		found, err := part.Measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
		r.Report(part.Name, found)
	}
	return nil
}
