package projections_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/projections/projectionstest"
	"github.com/millrace/millrace/topics"
)

// numbered makes records of the events of one aggregate, numbered from 1.
func numbered(t testing.TB, events ...topics.Event) []topics.Record {
	t.Helper()
	var envelopes []topics.Envelope
	for i, e := range events {
		env, err := topics.NewEnvelope(e, topics.WithSequence(int64(i+1)), topics.WithTime(start.Add(time.Duration(i)*time.Second)))
		require.NoError(t, err)
		envelopes = append(envelopes, env)
	}
	return records(envelopes...)
}

func TestPodsShowWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	pool := database(t)
	exit := 137
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	pod := func(n int) topics.Pod {
		return topics.Pod{ExecutionID: "e1", Attempt: n, PodID: fmt.Sprint("p", n), Namespace: "work", Name: fmt.Sprint("e1-", n)}
	}
	history := numbered(t,
		topics.PodCreated{Pod: pod(1), CreatedAt: at(1)},
		topics.PodScheduled{Pod: pod(1), Node: "n3", ScheduledAt: at(2)},
		topics.PodRunning{Pod: pod(1), Node: "n3", StartedAt: at(3)},
		topics.PodFailed{Pod: pod(1), Reason: "OOMKilled", ExitCode: &exit, FinishedAt: at(4)},
		topics.PodDeleted{Pod: pod(1), Reason: "finished", DeletedAt: at(5)},
		topics.PodCreated{Pod: pod(2), CreatedAt: at(6)},
	)
	rows := projectionstest.Converge(t, pool, projections.Executions(), history)
	require.Len(t, rows["pod_views"], 2)
	require.Len(t, rows["execution_views"], 1)
	assert.Equal(t, []any{"e1", 6.0, nil, nil}, []any{rows["execution_views"][0]["id"], rows["execution_views"][0]["version"], rows["execution_views"][0]["state"],
		rows["execution_views"][0]["requested_at"]}, "of the execution they tell the version alone, and it is not listed")
	for _, row := range rows["pod_views"] {
		if row["id"] == "p2" {
			assert.Equal(t, []any{"PENDING", 2.0, nil}, []any{row["phase"], row["attempt"], row["node"]})
			continue
		}
		assert.Equal(t, []any{"FAILED", "OOMKilled", 137.0, "n3", "e1", 1.0},
			[]any{row["phase"], row["reason"], row["exit_code"], row["node"], row["execution_id"], row["attempt"]})
		for _, column := range []string{"created_time", "scheduled_time", "started_time", "finished_time", "deleted_time"} {
			assert.NotNil(t, row[column], column)
		}
	}
}

// That a pod is gone is told when its execution has ended, of which it changes nothing but
// the version.
func TestPodsAreShownAfterTheEndOfTheirExecution(t *testing.T) {
	t.Parallel()
	pod := topics.Pod{ExecutionID: "e1", Attempt: 1, PodID: "p1", Namespace: "work", Name: "e1-1"}
	rows := projectionstest.Converge(t, database(t), projections.Executions(), numbered(t,
		topics.ExecutionQueued{ExecutionID: "e1", Attempt: 1, ResourceClass: "default", Priority: 3, ReadyAt: start},
		topics.PodCreated{Pod: pod, CreatedAt: start},
		topics.ExecutionCompleted{ExecutionID: "e1", Attempt: 1, Worker: "w", StartedAt: start, FinishedAt: start.Add(time.Minute)},
		topics.PodSucceeded{Pod: pod, Node: "n3", FinishedAt: start.Add(time.Minute)},
		topics.PodDeleted{Pod: pod, Reason: "finished", DeletedAt: start.Add(2 * time.Minute)},
	))
	require.Len(t, rows["execution_views"], 1)
	row := rows["execution_views"][0]
	assert.Equal(t, []any{"COMPLETED", 5.0, nil}, []any{row["state"], row["version"], row["reason"]})
	pods := rows["pod_views"]
	require.Len(t, pods, 1)
	assert.Equal(t, []any{"SUCCEEDED", "n3"}, []any{pods[0]["phase"], pods[0]["node"]})
	assert.NotNil(t, pods[0]["deleted_time"])
}

func TestSagasShowTheirSteps(t *testing.T) {
	t.Parallel()
	pool := database(t)
	id := "s1"
	history := numbered(t,
		topics.SagaStarted{SagaID: id, Name: "order", BusinessKey: "o-7", Steps: []string{"pay", "ship"}, StartedAt: start},
		topics.SagaStepStarted{SagaStep: topics.SagaStep{SagaID: id, Step: "pay", Attempt: 1}, StartedAt: start},
		topics.SagaStepCompleted{SagaStep: topics.SagaStep{SagaID: id, Step: "pay", Attempt: 1}, FinishedAt: start},
		topics.SagaStepStarted{SagaStep: topics.SagaStep{SagaID: id, Step: "ship", Attempt: 1}, StartedAt: start},
		topics.SagaStepFailed{SagaStep: topics.SagaStep{SagaID: id, Step: "ship", Attempt: 1}, Failure: topics.Failure{Reason: "no_stock"}, FinishedAt: start},
		topics.SagaCompensating{SagaID: id, Step: "ship", Reason: "step_failed", Message: "no stock"},
		topics.SagaStepStarted{SagaStep: topics.SagaStep{SagaID: id, Step: "pay", Compensation: true, Attempt: 1}, StartedAt: start},
		topics.SagaStepCompleted{SagaStep: topics.SagaStep{SagaID: id, Step: "pay", Compensation: true, Attempt: 1}, FinishedAt: start},
		topics.SagaCompensated{SagaID: id, Reason: "step_failed", FinishedAt: start.Add(time.Hour)},
	)
	row := projectionstest.Converge(t, pool, projections.Sagas(), history)["saga_views"][0]
	assert.Equal(t, []any{"COMPENSATED", "order", "o-7", "pay", "step_failed", 9.0},
		[]any{row["status"], row["name"], row["business_key"], row["step"], row["reason"], row["version"]})
	assert.NotNil(t, row["finished_time"])
	var status []string
	for _, step := range []string{"pay", "ship", "compensate:pay"} {
		value := row["steps"].(map[string]any)[step].(map[string]any)["value"].(map[string]any)
		status = append(status, fmt.Sprint(step, " ", value["status"]))
	}
	assert.Equal(t, []string{"pay COMPLETED", "ship FAILED", "compensate:pay COMPLETED"}, status)

	// A person has one go on that needed attention, and then ends it as it is. What
	// participants reply changes nothing.
	resolved := numbered(t,
		topics.SagaStarted{SagaID: id, Name: "order", StartedAt: start},
		topics.SagaFailed{SagaID: id, Step: "pay", Reason: "compensation_failed", FinishedAt: start},
		topics.SagaResumed{SagaID: id, Step: "ship", Actor: "ada"},
		topics.SagaReply{SagaID: id, CommandID: "c", Participant: "p", Outcome: topics.SagaDone},
	)
	row = projectionstest.Converge(t, pool, projections.Sagas(), resolved)["saga_views"][0]
	assert.Equal(t, []any{"RUNNING", nil, nil}, []any{row["status"], row["reason"], row["finished_time"]})
	row = projectionstest.Converge(t, pool, projections.Sagas(), numbered(t,
		topics.SagaStarted{SagaID: id, Name: "order", StartedAt: start},
		topics.SagaFailed{SagaID: id, Step: "pay", Reason: "compensation_failed", FinishedAt: start},
		topics.SagaEnded{SagaID: id, Status: "RESOLVED", Reason: "resolved", Actor: "ada", FinishedAt: start},
	))["saga_views"][0]
	assert.Equal(t, []any{"RESOLVED", "resolved"}, []any{row["status"], row["reason"]})

	projectionstest.Converge(t, pool, projections.Sagas(), numbered(t,
		topics.SagaStarted{SagaID: id, Name: "order", StartedAt: start},
		topics.SagaStepStarted{SagaStep: topics.SagaStep{SagaID: id, Step: "a\x00b", Attempt: 1}, StartedAt: start},
		topics.SagaFailed{SagaID: id, Step: "a", Reason: "compensation_failed", FinishedAt: start},
		topics.SagaCompleted{SagaID: id, FinishedAt: start}))
}
