package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/handlers/recorder"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/rebuild"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// newRebuilds makes what rebuilds projections and compares them with the history.
func newRebuilds(cfg configs.Config, c *connections, pool *pgxpool.Pool, signals *postgres.Signals) *rebuild.Store {
	groups := make([]string, len(cfg.EventLog.Topics))
	for i, t := range cfg.EventLog.Topics {
		groups[i] = pipeline.GroupPrefixDefault + recorder.NameOf(t)
	}
	var models []rebuild.Model
	for _, p := range projections.All() {
		models = append(models, rebuild.ModelOf(p, cfg.TopicNaming()))
	}
	return rebuild.New(rebuild.Config{
		Pool: pool, Models: models, Room: databaseRoom(cfg),
		Sources: map[string]rebuild.Source{
			rebuild.FromEventLog: rebuild.EventLog{RecorderGroups: groups},
			rebuild.FromKafka:    kafkaHistory{c.kafka, c.admin},
		},
		Wake: func() { signals.Wake(rebuild.KeeperWakeName) },
	})
}

func newRebuildKeeper(
	lc fx.Lifecycle, rebuilds *rebuild.Store, leases *lease.Manager, signals *postgres.Signals, log *slog.Logger,
) *rebuild.Keeper {
	wakes, stop := signals.Subscribe(rebuild.KeeperWakeName)
	lc.Append(fx.StopHook(stop))
	return rebuild.NewKeeper(rebuilds, leases, rebuild.KeeperConfig{Wakes: wakes}, log)
}

func runRebuilds(l *loops, k *rebuild.Keeper) { l.run("rebuild keeper", k.Run) }

// kafkaHistory is what the topics themselves still hold, as a source of rebuilds.
type kafkaHistory struct {
	config kafka.Config
	admin  *kafka.Admin
}

// Spans implements rebuild.Source. Of former topics of the name there is nothing.
func (h kafkaHistory) Spans(ctx context.Context, _ rebuild.Querier, topic string) (map[rebuild.Partition]rebuild.Span, error) {
	found, err := h.admin.FindTopics(ctx, topic)
	if err != nil || len(found) == 0 {
		return nil, rebuild.Later(err)
	}
	starts, err := h.admin.StartOffsets(ctx, topic)
	if err != nil {
		return nil, rebuild.Later(err)
	}
	ends, err := h.admin.EndOffsets(ctx, topic)
	if err != nil {
		return nil, rebuild.Later(err)
	}
	spans := make(map[rebuild.Partition]rebuild.Span, len(ends[topic]))
	for p, end := range ends[topic] {
		spans[rebuild.Partition{TopicID: found[0].ID, Partition: p}] = rebuild.Span{From: starts[topic][p], To: end}
	}
	return spans, nil
}

// Read implements rebuild.Source.
func (h kafkaHistory) Read(
	ctx context.Context, _ rebuild.Querier, topic string, p rebuild.Partition, from, to int64, each func(topics.Record) error,
) error {
	if from >= to {
		return nil
	}
	reader, err := kafka.NewRangeReader(h.config, []kafka.Range{{Topic: topic, TopicID: p.TopicID, Partition: p.Partition, From: from, To: to}})
	if err != nil {
		return fmt.Errorf("read topic %s: %w", topic, err)
	}
	defer reader.Close()
	for {
		pieces, err := reader.Next(ctx, []int{0})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return readFault(topic, err)
		}
		for _, piece := range pieces {
			for _, r := range piece.Records {
				if err := each(r); err != nil {
					return err
				}
			}
			if piece.Over {
				return nil
			}
		}
	}
}

// readFault says whether a record is gone for good.
func readFault(topic string, err error) error {
	err = fmt.Errorf("read topic %s: %w", topic, err)
	if _, outside := errors.AsType[*kafka.OutOfRangeError](err); outside || errors.Is(err, kafka.ErrTopicReplaced) {
		return fmt.Errorf("%w: start again", err)
	}
	return rebuild.Later(err)
}

// Horizon implements rebuild.Source: the time of the first record of the partition that
// reaches back the least, among those that have lost their beginning. Events may say
// that they happened up to projections.MaxAhead later than they were appended.
func (h kafkaHistory) Horizon(ctx context.Context, db rebuild.Querier, topic string) (since time.Time, known bool, err error) {
	spans, err := h.Spans(ctx, db, topic)
	if err != nil {
		return since, false, err
	}
	for p, span := range spans {
		if span.From == 0 {
			continue
		}
		at := time.Now() // nothing is left: all that there was is older
		if span.From < span.To {
			err := h.Read(ctx, db, topic, p, span.From, span.From+1, func(r topics.Record) error {
				at = r.Timestamp
				return nil
			})
			if err != nil {
				return since, false, err
			}
		}
		if at = at.Add(projections.MaxAhead); at.After(since) {
			since = at
		}
	}
	return since, len(spans) > 0, nil
}
