package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// ledger is a consumer whose effects show when they happen twice, or out of order.
// It writes down every event of executions, and has an inbox.
func ledger(name string, acts bool) app.Option {
	return app.Consumer(func() pipeline.Consumer {
		return pipeline.Consumer{
			Name: name, Topic: topics.ExecutionEvents, Replay: acts,
			Handle: pipeline.OnTx(func(ctx context.Context, tx pipeline.Tx, _ topics.Record) error {
				m := pipeline.Metadata(ctx)
				_, err := tx.Exec(ctx, `INSERT INTO ledger (consumer, session, key, sequence, id) VALUES ($1, $2, $3, $4, $5)`,
					m.Consumer, m.ReplaySession, string(m.Record.Key), m.Envelope.Sequence, m.Envelope.ID)
				return err
			}),
		}
	})
}

// replayed is a program with the ledger of a consumer that opts in to replays, and of
// one that does not.
func replayed(t *testing.T, cfg configs.Config) *program {
	return start(t, cfg, ledger("ledger", true), ledger("deaf", false))
}

func replayPool(t *testing.T, cfg configs.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), cfg.Postgres.DSN.Reveal())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `CREATE TABLE ledger (n bigint GENERATED ALWAYS AS IDENTITY, consumer text, session text, key text, sequence bigint, id text)`)
	require.NoError(t, err)
	return pool
}

func one[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&v))
	return v
}

func echo(n int) client.Request {
	return client.Request{Executor: "function", Spec: json.RawMessage(fmt.Sprintf(`{"name":"echo","args":%d}`, n))}
}

// settled submits executions and waits until all that they led to is recorded and in
// the ledger.
func settled(t *testing.T, p *program, pool *pgxpool.Pool, n int) {
	t.Helper()
	api := p.api()
	for i := range n {
		_, err := api.Submit(t.Context(), echo(i))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		return one[bool](t, pool, `SELECT NOT EXISTS (SELECT FROM executions WHERE state <> 'COMPLETED')
			AND NOT EXISTS (SELECT FROM outbox_events WHERE status <> 'PUBLISHED')
			AND (SELECT count(*) FROM outbox_events WHERE topic = 'execution_events') = (SELECT count(*) FROM event_log)
			AND (SELECT count(*) FROM event_log) = (SELECT count(*) FROM ledger WHERE consumer = 'ledger' AND session = '')`)
	}, patience, 50*time.Millisecond)
}

// views is what the read model of executions says, without when it was told.
func views(t *testing.T, pool *pgxpool.Pool) string {
	return one[string](t, pool, `SELECT coalesce(md5(string_agg((to_jsonb(v) - 'created_at' - 'updated_at')::text, ',' ORDER BY id)), '') FROM execution_views v`)
}

// rests waits until a replay has come to rest.
func rests(t *testing.T, api *client.Client, id string) client.Replay {
	t.Helper()
	var r client.Replay
	require.Eventually(t, func() bool {
		var err error
		r, err = api.Replay(t.Context(), id)
		require.NoError(t, err)
		return !r.Goes()
	}, patience, 20*time.Millisecond)
	return r
}

// inLedger waits until a consumer has as many events of a session as were published,
// each once, and checks the order of each key.
func inLedger(t *testing.T, pool *pgxpool.Pool, r client.Replay) {
	t.Helper()
	count := func() int64 {
		return one[int64](t, pool, `SELECT count(*) FROM ledger WHERE consumer = 'ledger' AND session = $1`, r.ID)
	}
	require.Eventually(t, func() bool { return count() >= r.Published }, patience, 20*time.Millisecond)
	assert.Equal(t, r.Published, count())
	assert.Equal(t, r.Published, one[int64](t, pool, `SELECT count(DISTINCT id) FROM ledger WHERE consumer = 'ledger' AND session = $1`, r.ID))
	assert.Zero(t, one[int64](t, pool, `SELECT count(*) FROM (SELECT sequence < lag(sequence) OVER (PARTITION BY key ORDER BY n) AS back
		FROM ledger WHERE consumer = 'ledger' AND session = $1) AS steps WHERE back`, r.ID), "events of a key out of order")
	assert.Zero(t, one[int64](t, pool, `SELECT count(*) FROM ledger WHERE consumer = 'deaf' AND session <> ''`))
}

// onEither runs a test on the embedded broker, and on Apache Kafka where there is one.
func onEither(t *testing.T, test func(t *testing.T, cfg configs.Config)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, sharedConfig(t)) })
	t.Run("kafka", func(t *testing.T) {
		realkafka.Require(t)
		t.Parallel()
		// A cluster of its own, since the groups of two tests would share their members.
		cluster, err := realkafka.Start(t.Context(), realkafka.Config{DataDir: t.TempDir()})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, cluster.Close()) })
		sources := configs.Sources{Overrides: overrides(
			"data_dir", testenv.DataDir(t), "kafka.brokers", strings.Join(cluster.Addrs(), ","),
			"postgres.dsn", testenv.Database(t, postgres.MigrateDSN),
		)}
		cfg, err := sources.Load()
		require.NoError(t, err)
		for topic, table := range cfg.Topics {
			table.Name = "prod." + string(topic)
			cfg.Topics[topic] = table
		}
		test(t, cfg)
	})
}

// Each session has every effect once: a second one has them again. What the read
// model says does not change, and those who did not opt in see nothing.
func TestReplaysHaveTheirEffectsOnce(t *testing.T) {
	t.Parallel()
	onEither(t, func(t *testing.T, cfg configs.Config) {
		pool := replayPool(t, cfg)
		p := replayed(t, cfg)
		settled(t, p, pool, 40)
		before := views(t, pool)
		executions := one[int64](t, pool, `SELECT count(*) FROM executions`)
		events := one[int64](t, pool, `SELECT count(*) FROM event_log`)
		api := p.api()
		topic := cfg.TopicNaming().Physical(topics.ExecutionEvents)
		for _, request := range []client.NewReplay{
			{Target: client.ReplayTarget{Consumer: "ledger"}},
			{Target: client.ReplayTarget{Topic: topic}},
			{Target: client.ReplayTarget{Consumer: "ledger"}, Source: "kafka"},
		} {
			r, err := api.CreateReplay(t.Context(), request, "")
			require.NoError(t, err)
			r = rests(t, api, r.ID)
			assert.Equal(t, "DONE", r.State, r.Note)
			assert.Equal(t, events, r.Published)
			assert.Zero(t, r.Refused)
			inLedger(t, pool, r)
		}
		// The view has had one session, the ledger three. It is there once all that came
		// behind it in the ledger is.
		group := one[string](t, pool, `SELECT consumer_group FROM consumers WHERE name = 'executions-view'`)
		require.Eventually(t, func() bool {
			return one[bool](t, pool, `SELECT NOT EXISTS (SELECT FROM consumer_offsets v JOIN consumer_offsets l USING (topic_id, partition)
				WHERE v.consumer_group = $1 AND l.consumer_group LIKE '%-ledger' AND v.next_offset + 1000 < l.next_offset)`, group)
		}, patience, 20*time.Millisecond)
		require.Eventually(t, func() bool { return views(t, pool) == before }, patience, 20*time.Millisecond)
		assert.Equal(t, executions, one[int64](t, pool, `SELECT count(*) FROM executions`), "nothing was done again")
		assert.Equal(t, events, one[int64](t, pool, `SELECT count(*) FROM event_log`), "a replay is not recorded")

		// Forced onto the tasks, it is published and dropped.
		tasks := cfg.TopicNaming().Physical(topics.ExecutionTasks)
		request := client.NewReplay{Source: "kafka", Target: client.ReplayTarget{Topic: tasks}}
		_, err := api.CreateReplay(t.Context(), request, "")
		var refused *client.Problem
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, "replay_refused", refused.Code)
		request.Force, request.Reason = true, "a test"
		r, err := api.CreateReplay(t.Context(), request, "")
		require.NoError(t, err)
		r = rests(t, api, r.ID)
		assert.Equal(t, executions, r.Published)
		assert.True(t, r.Forced)
		assert.Contains(t, r.Actions[0].Detail, "forced although")
		settled(t, p, pool, 3) // the worker has read on
		assert.Equal(t, executions+3, one[int64](t, pool, `SELECT count(*) FROM executions WHERE attempt = 1`), "nothing was done again")
	})
}

// J1: whatever is done to a replay, and to the processes, while everything else goes
// on, it neither leaves anything out nor has any effect twice.
func TestAReplayUnderPauseAndRestartAndLiveTraffic(t *testing.T) {
	t.Parallel()
	onEither(t, func(t *testing.T, cfg configs.Config) {
		pool := replayPool(t, cfg)
		first := replayed(t, cfg)
		settled(t, first, pool, 60)
		events := one[int64](t, pool, `SELECT count(*) FROM event_log`)
		second := replayed(t, cfg)
		api := second.api()
		r, err := api.CreateReplay(t.Context(), client.NewReplay{Target: client.ReplayTarget{Consumer: "ledger"}, Rate: 25}, "j1")
		require.NoError(t, err)
		cancelled, err := api.CreateReplay(t.Context(), client.NewReplay{Target: client.ReplayTarget{Consumer: "ledger"}, Rate: 20}, "")
		require.NoError(t, err)

		live, stopLive := context.WithCancel(t.Context())
		var traffic sync.WaitGroup
		traffic.Go(func() {
			for n := 0; live.Err() == nil; n++ {
				_, _ = api.Submit(live, echo(n))
				select {
				case <-live.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
		reaches := func(share float64) {
			require.Eventually(t, func() bool {
				now, err := api.Replay(t.Context(), r.ID)
				require.NoError(t, err)
				return now.Progress >= share
			}, patience, 10*time.Millisecond)
		}
		reaches(0.2)
		paused, err := api.ControlReplay(t.Context(), r.ID, "pause", "")
		require.NoError(t, err)
		assert.Equal(t, "PAUSED", paused.State)
		_, err = api.ControlReplay(t.Context(), r.ID, "resume", "")
		require.NoError(t, err)
		reaches(0.4)
		require.NoError(t, first.stop()) // its keeper, perhaps; the other takes over
		reaches(0.6)
		ended, err := api.ControlReplay(t.Context(), cancelled.ID, "cancel", "")
		require.NoError(t, err)
		assert.Equal(t, "CANCELLED", ended.State)
		// So that it is not done before it is hurried, however long the processes take.
		_, err = api.ControlReplay(t.Context(), r.ID, "pause", "")
		require.NoError(t, err)
		third := replayed(t, cfg)
		require.NoError(t, second.stop())
		api = third.api()
		_, err = api.SetReplayRate(t.Context(), r.ID, 0, "hurry")
		require.NoError(t, err)
		_, err = api.ControlReplay(t.Context(), r.ID, "resume", "")
		require.NoError(t, err)
		stopLive()
		traffic.Wait()

		done := rests(t, api, r.ID)
		assert.Equal(t, "DONE", done.State, done.Note)
		assert.Equal(t, events, done.Published, "what was published meanwhile is no part of it")
		inLedger(t, pool, done)
		ended = rests(t, api, cancelled.ID)
		assert.Less(t, ended.Published, events)
		inLedger(t, pool, ended)
		settled(t, third, pool, 1)
	})
}
