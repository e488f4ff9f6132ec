package frame

import (
	"context"
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
