package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/topics"
)

// together is how many instances run at a time, so that their events lie between each
// other's.
const together = 100

// topicID is the identity of the topic.
var topicID = [16]byte{1}

// plant fills the event log, and has recorder and consumer stand at its end.
func (b *bench) plant(ctx context.Context) error {
	offsets := make([]int64, b.partitions)
	began := time.Now().UTC().Add(-time.Hour).Truncate(time.Millisecond)
	for b.records < b.events {
		records, err := b.instances(offsets, began.Add(time.Duration(b.records)*time.Microsecond))
		if err != nil {
			return err
		}
		err = postgres.InTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error { return eventlog.Append(ctx, tx, records) })
		if err != nil {
			return err
		}
		b.records += len(records)
	}
	for _, group := range []string{recorderGroup, b.model.Group} {
		for p, next := range offsets {
			_, err := b.pool.Exec(ctx, `INSERT INTO consumer_offsets (consumer_group, topic_id, topic, partition, next_offset, owner_epoch) VALUES ($1, $2, $3, $4, $5, 1)`,
				group, uuid.UUID(topicID), b.model.Topic, p, next)
			if err != nil {
				return err
			}
		}
	}
	_, err := b.pool.Exec(ctx, `ANALYZE`)
	return err
}

// instances makes the events of some instances, which lie in the partition of their
// instance.
func (b *bench) instances(offsets []int64, at time.Time) ([]topics.Record, error) {
	lives := make([][]topics.Record, together)
	for i := range lives {
		var err error
		if lives[i], err = b.instance(at); err != nil {
			return nil, err
		}
	}
	var records []topics.Record
	for step := range 2 + 2*b.tasks {
		for i, life := range lives {
			r := life[step]
			r.Partition = int32(i % b.partitions)
			r.Offset = offsets[r.Partition]
			offsets[r.Partition]++
			records = append(records, r)
		}
	}
	return records, nil
}

// instance makes the events of one instance.
func (b *bench) instance(at time.Time) ([]topics.Record, error) {
	b.planted++
	id := fmt.Sprintf("order-%08d", b.planted)
	var records []topics.Record
	event := func(kind string, data map[string]any) error {
		at = at.Add(time.Millisecond)
		data["instanceId"] = id
		text, err := json.Marshal(data)
		if err != nil {
			return err
		}
		env := topics.Envelope{
			ID: uuid.NewString(), Source: "/bench/" + id, Type: "io.serverlessworkflow." + kind + ".v1", Time: at,
			Subject: id, DataContentType: "application/json", Data: text,
		}
		r := env.Record(b.model.Topic, []byte(id))
		r.TopicID, r.Timestamp = topicID, at
		records = append(records, r)
		return nil
	}
	payload := map[string]string{"order": strings.Repeat("x", b.payload)}
	workflow := func(change, status string, more map[string]any) error {
		data := map[string]any{"workflowNamespace": "shop", "workflowName": "order", "workflowVersion": "1.0.0", "status": status, "lastUpdateTime": at}
		for name, value := range more {
			data[name] = value
		}
		return event("workflow."+change, data)
	}
	if err := workflow("started", "RUNNING", map[string]any{"startTime": at, "input": payload}); err != nil {
		return nil, err
	}
	for i := range b.tasks {
		data := func(status string) map[string]any {
			return map[string]any{
				"taskExecutionId": uuid.NewString(), "taskName": fmt.Sprintf("step%d", i), "taskPosition": fmt.Sprintf("do/%d/step%d", i, i), "status": status,
			}
		}
		started, completed := data("RUNNING"), data("COMPLETED")
		started["startTime"], started["input"] = at, payload
		completed["endTime"], completed["output"] = at, payload
		if err := event("task.started", started); err != nil {
			return nil, err
		}
		if err := event("task.completed", completed); err != nil {
			return nil, err
		}
	}
	err := workflow("completed", "COMPLETED", map[string]any{"endTime": at, "output": payload})
	return records, err
}
