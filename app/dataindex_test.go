package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// index is what the test sees of the data index from outside.
type index struct {
	t         *testing.T
	db        *pgx.Conn
	publisher *kafka.Publisher
	cfg       configs.Config
}

func openIndex(t *testing.T, cfg configs.Config) *index {
	t.Helper()
	db, err := pgx.Connect(t.Context(), cfg.Postgres.DSN.Reveal())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close(context.WithoutCancel(t.Context()))) })
	publisher, err := kafka.NewPublisher(app.KafkaConfig(cfg, slog.New(slog.DiscardHandler)), kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, publisher.Close()) })
	return &index{t: t, db: db, publisher: publisher, cfg: cfg}
}

func (x *index) publish(records ...topics.Record) {
	x.t.Helper()
	for i := range records {
		records[i].Topic = string(topics.FlowLifecycle)
	}
	require.NoError(x.t, errors.Join(x.publisher.PublishRecords(x.t.Context(), records)...))
}

// becomes waits until the workflows, by id, have these statuses.
func (x *index) becomes(want map[string]string) {
	x.t.Helper()
	got := map[string]string{}
	require.Eventually(x.t, func() bool {
		rows, err := x.db.Query(x.t.Context(), `SELECT id, coalesce(status, '') FROM workflow_instances`)
		require.NoError(x.t, err)
		clear(got)
		var id, status string
		_, err = pgx.ForEachRow(rows, []any{&id, &status}, func() error { got[id] = status; return nil })
		require.NoError(x.t, err)
		return assert.ObjectsAreEqual(want, got)
	}, patience, 20*time.Millisecond, "want %v, got %v", want, got)
}

// deadLetters waits until there are so many records in the dead-letter topic.
func (x *index) deadLetters(n int) []topics.Record {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	tail, err := kafka.NewTail(ctx, app.KafkaConfig(x.cfg, slog.New(slog.DiscardHandler)), kafka.TailConfig{Topics: []string{string(topics.DataIndexDeadLetters)}, From: kafka.StartEarliest})
	require.NoError(x.t, err)
	defer tail.Close()
	var letters []topics.Record
	enough := errors.New("enough")
	err = tail.Run(ctx, func(r topics.Record) error {
		if letters = append(letters, r); len(letters) == n {
			return enough
		}
		return nil
	})
	require.ErrorIs(x.t, err, enough)
	return letters
}

// lifecycleEvent is of today: the program under test purges what is old.
func lifecycleEvent(eventType, data string) topics.Record {
	return topics.Record{Value: fmt.Appendf(nil, `{"specversion":"1.0","id":"1","source":"engine","type":%q,"time":%q,"data":%s}`,
		eventType, time.Now().UTC().Format(time.RFC3339), data)}
}

// Requirement 000, Overview and Error Handling, from the topic to the tables: what
// cannot be processed is in the dead-letter topic, the consumer goes on, and what stock
// tools copy back is processed when its cause is gone.
func TestRequirement000_Overview_FromTheTopicToTheTables(t *testing.T) {
	t.Parallel()
	cfg := sharedConfig(t)
	// A version that does not know one type yet.
	older := projections.DataIndex(nil)
	apply := older.Apply
	older.Apply = func(b *projections.Batch, e projections.Event) error {
		if e.Type == "io.serverlessworkflow.workflow.cancelled.v1" {
			return errors.New("this version does not know the type")
		}
		return apply(b, e)
	}
	without := cfg
	without.DataIndex.Enabled = false
	p := start(t, without, app.Consumer(older.Consumer))
	x := openIndex(t, cfg)
	x.publish(
		lifecycleEvent("io.serverlessworkflow.task.started.v1", `{"instanceId":"a","taskPosition":"do/0/x"}`),
		lifecycleEvent("io.serverlessworkflow.workflow.cancelled.v1", `{"instanceId":"b"}`),
		lifecycleEvent("io.serverlessworkflow.workflow.cancelled.v1", `{"name":"c"}`),
		lifecycleEvent("io.serverlessworkflow.workflow.started.v1", `{"instanceId":"d"}`),
	)
	x.becomes(map[string]string{"a": "", "d": "RUNNING"})
	letters := x.deadLetters(2)
	cause, _ := letters[0].Header("dead-letter-reason")
	assert.Contains(t, string(cause), "this version does not know the type")
	require.NoError(t, p.stop())

	p = start(t, cfg)
	// One is copied with its headers, the other by its value alone.
	x.publish(topics.Record{Key: letters[0].Key, Value: letters[0].Value, Headers: letters[0].Headers}, topics.Record{Value: letters[1].Value})
	x.becomes(map[string]string{"a": "", "b": "CANCELLED", "c": "CANCELLED", "d": "RUNNING"})
	for placeholder, err := range p.api().Placeholders(t.Context(), new(time.Duration(0)), 10) {
		require.NoError(t, err)
		assert.Equal(t, "a", placeholder.InstanceID)
	}
	require.NoError(t, p.stop())
}

func TestTheDataIndexCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	p := start(t, sharedConfig(t, "data_index.enabled", "false"))
	_, err := p.api().Consumer(t.Context(), projections.DataIndexName)
	require.Error(t, err, "there is no such consumer")
	require.NoError(t, p.stop())
}
