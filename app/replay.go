package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/topics"
)

func newReplays(cfg configs.Config, c *connections, pool *pgxpool.Pool, signals *postgres.Signals) *replay.Store {
	return replay.New(replay.Config{
		Pool: pool, Broker: ReplayBroker(c.kafka, c.admin), ConfirmAbove: int64(cfg.Replay.ConfirmAbove),
		Work: func(topic string) bool { return topics.CarriesWork(cfg.TopicNaming().Logical(topic)) },
		DeadLetters: func(topic string) bool {
			return cfg.TopicNaming().Logical(topic) == topics.DeadLetters || slices.Contains(cfg.DeadLetters.Topics, topic)
		},
		Wake: func() { signals.Wake(replay.WakeName) },
	})
}

func newReplayKeeper(
	lc fx.Lifecycle, cfg configs.Config, replays *replay.Store, leases *lease.Manager, records *kafka.Publisher,
	signals *postgres.Signals, log *slog.Logger, reg prometheus.Registerer,
) *replay.Keeper {
	wakes, stop := signals.Subscribe(replay.WakeName)
	lc.Append(fx.StopHook(stop))
	return replay.NewKeeper(replays, leases, replay.KeeperConfig{
		Publisher: records, IsRejected: kafka.IsRejected, MaxRunning: cfg.Replay.MaxRunning, Wakes: wakes, Registerer: reg,
	}, log)
}

func runReplays(l *loops, k *replay.Keeper) { l.run("replay keeper", k.Run) }

// replayBroker is Kafka as replays ask it.
type replayBroker struct {
	config kafka.Config
	admin  *kafka.Admin
}

// ReplayBroker returns Kafka as replays ask it.
func ReplayBroker(config kafka.Config, admin *kafka.Admin) replay.Broker {
	return replayBroker{config, admin}
}

// Topics implements replay.Broker.
func (b replayBroker) Topics(ctx context.Context, names ...string) (map[string]replay.Topic, error) {
	list, err := b.admin.FindTopics(ctx, names...)
	if err != nil {
		return nil, err
	}
	found := make(map[string]replay.Topic, len(list))
	for _, t := range list {
		found[t.Name] = replay.Topic{ID: t.ID, Partitions: t.Partitions}
	}
	return found, nil
}

// Starts implements replay.Broker.
func (b replayBroker) Starts(ctx context.Context, topic string) (map[int32]int64, error) {
	offsets, err := b.admin.StartOffsets(ctx, topic)
	return offsets[topic], err
}

// Ends implements replay.Broker.
func (b replayBroker) Ends(ctx context.Context, topic string) (map[int32]int64, error) {
	offsets, err := b.admin.EndOffsets(ctx, topic)
	return offsets[topic], err
}

// After implements replay.Broker.
func (b replayBroker) After(ctx context.Context, topic string, t time.Time) (map[int32]int64, error) {
	offsets, err := b.admin.OffsetsAfter(ctx, t, topic)
	return offsets[topic], err
}

// Committed implements replay.Broker.
func (b replayBroker) Committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	return b.admin.Committed(ctx, group, topic)
}

// Read implements replay.Broker.
func (b replayBroker) Read(_ context.Context, c replay.Cursor) (replay.Reader, error) {
	ranges := make([]kafka.Range, len(c))
	for i, w := range c {
		ranges[i] = kafka.Range{Topic: w.Topic, TopicID: w.TopicID, Partition: w.Partition.Partition, From: w.Next, To: w.To}
		if w.Over {
			ranges[i].From = w.To
		}
	}
	r, err := kafka.NewRangeReader(b.config, ranges)
	if err != nil {
		return nil, err
	}
	return replayReader{r}, nil
}

// replayReader is a reader of ranges as replays use it.
type replayReader struct{ *kafka.RangeReader }

// Next implements replay.Reader.
func (r replayReader) Next(ctx context.Context, wanted []int) ([]replay.Piece, error) {
	list, err := r.RangeReader.Next(ctx, wanted)
	pieces := make([]replay.Piece, len(list))
	for i, p := range list {
		pieces[i] = replay.Piece{Partition: p.Range, Records: p.Records, Next: p.Next, Over: p.Over}
	}
	if _, outside := errors.AsType[*kafka.OutOfRangeError](err); outside || errors.Is(err, kafka.ErrTopicReplaced) {
		err = fmt.Errorf("%w: %w", replay.ErrGone, err)
	}
	return pieces, err
}
