package jobs_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	workflowv1 "github.com/millrace/millrace/api/proto/workflow/v1"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/jobs/jobstest"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/topics"
)

// kafkaRig is a rig with a topic for type "a", so that jobs are dispatched where they
// begin.
func kafkaRig(t *testing.T) *jobstest.Rig {
	t.Helper()
	r := jobstest.NewRig(t, jobs.KafkaOutbox, nil)
	r.Store.Prepare([]string{"a"})
	require.Eventually(t, func() bool { return len(r.Broker.Topics()) == 1 }, patience, time.Millisecond)
	// The topic is there before the store knows.
	require.Eventually(t, func() bool { return r.Store.Prepared("a") }, patience, time.Millisecond)
	return r
}

func query[T any](t *testing.T, r *jobstest.Rig, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, r.Pool.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

func begin(t *testing.T, r *jobstest.Rig, specs ...jobstest.Spec) []uuid.UUID {
	t.Helper()
	ids, err := r.Begin(t.Context(), specs...)
	require.NoError(t, err)
	return ids
}

func TestADispatchIsARowOfItsJobsTransaction(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	r.StopRelay()
	ids := begin(t, r, jobstest.Spec{JobType: "a", Retries: 3, Variables: json.RawMessage(`{"x":1}`)})
	assert.Equal(t, jobs.Locked, r.Status(ids[0]))
	assert.Equal(t, ids[0].String(), query[string](t, r, `SELECT job_id::text FROM dispatch_outbox WHERE job_type = 'a'`))
	require.NoError(t, jobs.NewDispatches(r.Store).Backlog(t.Context()))
	_, err := r.Store.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 1})
	require.ErrorIs(t, err, jobs.ErrPollingOff)

	r.Relay()
	j := r.One("w", "a")
	assert.Equal(t, ids[0], j.ID)
	assert.Equal(t, 3, j.RetriesRemaining)
	assert.Equal(t, 1, j.Attempt)
	assert.Equal(t, `{"x":1}`, string(j.Variables))
	record := r.Broker.Records("a")[0]
	assert.Equal(t, "workflow.jobs.a", record.Topic)
	assert.Equal(t, j.InstanceID.String(), string(record.Key))
	var event workflowv1.JobDispatchEvent
	require.NoError(t, proto.Unmarshal(record.Value, &event))
	assert.Empty(t, event.ProtoReflect().GetUnknown(), "it is what the contract says")
	assert.Equal(t, []any{uint32(1), ids[0].String(), j.InstanceID.String(), j.InstanceID.String() + ".1", "a", int32(3), `{"x":1}`},
		[]any{event.GetSchemaVersion(), event.GetJobId(), event.GetInstanceId(), event.GetStepExecutionId(), event.GetJobType(),
			event.GetRetriesRemaining(), string(event.GetJobPayload())})
	assert.WithinDuration(t, time.Now(), event.GetCreatedAt().AsTime(), time.Hour)
	dedup, _ := record.Header("dedup-id")
	assert.Equal(t, event.GetDedupId(), string(dedup))
	assert.Equal(t, query[string](t, r, `SELECT dispatch_id::text FROM jobs`), string(dedup))
	kind, _ := record.Header("content-type")
	assert.Equal(t, "application/x-protobuf; proto=workflow.v1.JobDispatchEvent", string(kind))
	assert.Equal(t, []any{"step", int32(1), int64(1), int32(3)}, []any{event.GetStepId(), event.GetAttempt(), event.GetToken(), event.GetPriority()})
	require.Eventually(t, func() bool { return query[int](t, r, `SELECT count(*) FROM dispatch_outbox`) == 0 }, patience, time.Millisecond)
}

func TestNamesOfTopics(t *testing.T) {
	t.Parallel()
	assert.Equal(t, topics.Topic("workflow.jobs.send-email_2.x"), jobs.TopicOf("send-email_2.x"))
	assert.Equal(t, topics.Topic("workflow.jobs.a_x3ab_x20c"), jobs.TopicOf("a:b c"))
	long := jobs.TopicOf(strings.Repeat("y", 300))
	assert.Len(t, string(long), 249)
	assert.NotEqual(t, long, jobs.TopicOf(strings.Repeat("y", 301)))
}

func TestJobsWaitWhileKafkaIsAbsent(t *testing.T) {
	t.Parallel()
	r := jobstest.NewRig(t, jobs.KafkaOutbox, nil)
	r.Broker.Away(true)
	first := begin(t, r, jobstest.Spec{JobType: "a"})
	require.Eventually(t, func() bool { return r.Store.Ready(t.Context()) != nil }, patience, time.Millisecond)
	require.ErrorContains(t, r.Store.Ready(t.Context()), "jobs of type a wait")
	status, err := r.Store.DispatchStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(1), status.Claimable)
	assert.Contains(t, status.Fault, "jobs of type a wait")
	r.Broker.Away(false)
	assert.Equal(t, first[0], r.One("w", "a").ID)
	require.Eventually(t, func() bool { return r.Store.Ready(t.Context()) == nil }, patience, time.Millisecond)

	// Where the topic is known, rows wait in the outbox, and no lease runs.
	r.Broker.Away(true)
	second := begin(t, r, jobstest.Spec{JobType: "a"})
	assert.Equal(t, 1, query[int](t, r, `SELECT count(*) FROM dispatch_outbox WHERE job_id = $1`, second[0]))
	assert.True(t, query[bool](t, r, `SELECT lock_expires_at IS NULL FROM jobs WHERE id = $1`, second[0]))
	r.Broker.Away(false)
	assert.Equal(t, second[0], r.One("w", "a").ID)
}

func TestALeaseBeginsWhenItsRecordIsPublished(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	r.StopRelay()
	ids := begin(t, r, jobstest.Spec{JobType: "a"})
	// As if it had waited for long.
	_, err := r.Pool.Exec(t.Context(), `UPDATE jobs SET locked_at = locked_at - interval '50 minutes'`)
	require.NoError(t, err)
	_, err = jobs.NewSweeper(r.Store, r.Actions).Sweep(t.Context())
	require.NoError(t, err)
	assert.Equal(t, jobs.Locked, r.Status(ids[0]), "the lease has not begun")
	r.Relay()
	require.Eventually(t, func() bool {
		return query[bool](t, r, `
			SELECT EXISTS (SELECT FROM jobs j JOIN outbox_events o ON o.id = j.dispatch_id WHERE j.lock_expires_at = o.published_at + interval '30 s')`)
	}, patience, 5*time.Millisecond)
	// Nobody takes it: another record of the same attempt follows.
	r.Expire(ids[0])
	list := r.Some("w", 2, "a")
	assert.Equal(t, []int{1, 1}, []int{list[0].Attempt, list[1].Attempt})
	assert.Equal(t, []int64{1, 2}, []int64{list[0].Token, list[1].Token})
	beats, err := r.Heartbeat(t.Context(), []jobs.Beat{{Holder: holder(list[0])}})
	require.NoError(t, err)
	require.ErrorIs(t, beats[0].Err, jobs.ErrLeaseLost, "the record before has no lease any more")
}

// A worker that takes over a partition reads the record of a lease that has run out and the
// one that follows it at once, and speaks of both in one call: it has the later one only.
func TestTwoRecordsOfOneJobInOneCall(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	ids := begin(t, r, jobstest.Spec{JobType: "a"}, jobstest.Spec{JobType: "a"})
	for _, j := range r.Some("killed", 2, "a") {
		beats, err := r.Heartbeat(t.Context(), []jobs.Beat{{Holder: holder(j)}})
		require.NoError(t, err)
		require.NoError(t, beats[0].Err)
	}
	for _, id := range ids {
		r.Expire(id)
	}
	var beats []jobs.Beat
	for _, id := range ids {
		for token := range int64(2) {
			beats = append(beats, jobs.Beat{Holder: jobs.Holder{JobID: id, WorkerID: "w", Token: token + 1}})
		}
	}
	slices.Reverse(beats[2:]) // the later one first
	beats = append(beats, beats[1])
	results, err := r.Heartbeat(t.Context(), beats)
	require.NoError(t, err)
	for i, beat := range beats {
		if beat.Token == 1 {
			require.ErrorIs(t, results[i].Err, jobs.ErrLeaseLost, "beat %d is of the lease that is over", i)
			assert.Zero(t, results[i].LockExpiresAt)
			continue
		}
		require.NoError(t, results[i].Err, "beat %d", i)
		assert.Equal(t, query[time.Time](t, r, `SELECT lock_expires_at FROM jobs WHERE id = $1`, beat.JobID).UTC(), results[i].LockExpiresAt.UTC())
	}
}

func TestTwoReadersOfOneRecord(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	begin(t, r, jobstest.Spec{JobType: "a"})
	one := r.One("w1", "a")
	two := one
	two.WorkerID = "w2"
	beats, err := r.Heartbeat(t.Context(), []jobs.Beat{{Holder: holder(one)}})
	require.NoError(t, err)
	require.NoError(t, beats[0].Err)
	beats, err = r.Heartbeat(t.Context(), []jobs.Beat{{Holder: holder(two)}})
	require.NoError(t, err)
	require.ErrorIs(t, beats[0].Err, jobs.ErrLeaseLost)
	require.ErrorIs(t, r.Complete(t.Context(), jobs.Completion{Holder: holder(two)})[0], jobs.ErrLeaseLost)
	require.NoError(t, r.Complete(t.Context(), jobs.Completion{Holder: holder(one)})[0])
}

func TestRetriesAreDispatchedWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	ids := begin(t, r, jobstest.Spec{JobType: "a", RunAt: time.Now().Add(300 * time.Millisecond), Input: json.RawMessage(`{"only":1}`)})
	assert.Equal(t, jobs.Unlocked, r.Status(ids[0]))
	assert.Empty(t, r.Broker.Records("a"))
	j := r.One("w", "a")
	assert.Equal(t, ids[0], j.ID)
	assert.Equal(t, `{"only":1}`, string(j.Variables))
}

func TestJobsOfAnInstanceStayInOrder(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	instance := uuid.Must(uuid.NewV7())
	var want []uuid.UUID
	for i := range 20 {
		want = append(want, begin(t, r, jobstest.Spec{JobType: "a", Instance: instance, Activity: i + 1})...)
	}
	assert.Equal(t, want, idsOf(r.Some("w", 20, "a")))
}

func TestALimitHoldsWhereJobsGoOverKafka(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	_, err := r.Store.SetLimits(t.Context(), jobs.Limits{JobType: "a", MaxRunning: 2})
	require.NoError(t, err)
	r.Store.RefreshLimits(t.Context())
	const n = 12
	ids := begin(t, r, make300("a")[:n]...)
	for done := 0; done < n; {
		list, err := r.Take(t.Context(), "w", 5, "a")
		require.NoError(t, err)
		assert.LessOrEqual(t, query[int](t, r, `SELECT count(*) FROM jobs WHERE status = 'LOCKED'`), 2)
		for _, j := range list {
			require.NoError(t, r.Complete(t.Context(), jobs.Completion{Holder: holder(j)})[0])
			done++
		}
	}
	for _, id := range ids {
		assert.Equal(t, jobs.Completed, r.Status(id))
	}
}

func TestASkippedDispatchIsRepeated(t *testing.T) {
	t.Parallel()
	r := kafkaRig(t)
	refused := 0
	r.Broker.Reject(func(topics.Record) bool { refused++; return true })
	begin(t, r, jobstest.Spec{JobType: "a"})
	operator := outbox.NewOperator(r.Pool, r.Signals)
	var seq int64
	require.Eventually(t, func() bool {
		list, err := operator.List(t.Context(), outbox.Filter{State: outbox.Failed})
		if err == nil && len(list) == 1 {
			seq = list[0].Seq
		}
		return seq > 0
	}, patience, 5*time.Millisecond)
	status, err := r.Store.DispatchStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(1), status.Rejected)
	r.Broker.Reject(nil)
	require.NoError(t, operator.Skip(t.Context(), seq, outbox.Author{Name: "ann", Reason: "too large"}))
	r.Run(jobs.NewSweeper(r.Store, r.Actions).Run)
	j := r.One("w", "a")
	assert.Equal(t, int64(2), j.Token)
	require.NoError(t, r.Complete(t.Context(), jobs.Completion{Holder: holder(j)})[0])
}

func TestSwitchFromPollingToKafka(t *testing.T) {
	t.Parallel()
	before := jobstest.NewRig(t, jobs.Polling, nil)
	ids := begin(t, before, make300("a")[:30]...)
	held, err := before.Claim(t.Context(), jobs.ClaimRequest{WorkerID: "w", Types: []string{"a"}, Max: 10})
	require.NoError(t, err)
	before.Stop()

	after := jobstest.NewRigOn(t, before.DSN, before.Broker, jobs.KafkaOutbox, nil)
	waiting := after.Some("k", 20, "a")
	status, err := after.Store.DispatchStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(10), status.OtherMode)
	assert.False(t, status.Drained())
	// Those that were held are completed, or their lease ends and they are dispatched.
	for _, j := range held[:5] {
		require.NoError(t, after.Complete(t.Context(), jobs.Completion{Holder: holder(j)})[0])
	}
	beats, err := after.Heartbeat(t.Context(), []jobs.Beat{{Holder: holder(held[5])}})
	require.NoError(t, err)
	require.NoError(t, beats[0].Err)
	after.Expire(idsOf(held[5:])...)
	rest := after.Some("k", 5, "a")
	assert.ElementsMatch(t, idsOf(held[5:]), idsOf(rest))
	for _, j := range append(waiting, rest...) {
		require.NoError(t, after.Complete(t.Context(), jobs.Completion{Holder: holder(j)})[0])
	}
	for _, id := range ids {
		assert.Equal(t, jobs.Completed, after.Status(id))
	}
	status, err = after.Store.DispatchStatus(t.Context())
	require.NoError(t, err)
	assert.True(t, status.Drained())
}

func TestSwitchFromKafkaToPolling(t *testing.T) {
	t.Parallel()
	before := kafkaRig(t)
	published := begin(t, before, make300("a")[:10]...)
	out := before.Some("k", 10, "a")
	require.Eventually(t, func() bool { return query[int](t, before, `SELECT count(*) FROM dispatch_outbox`) == 0 }, patience, time.Millisecond)
	before.StopRelay()
	pending := begin(t, before, make300("a")[:15]...)
	later := begin(t, before, jobstest.Spec{JobType: "a", RunAt: time.Now().Add(time.Second)})
	before.Stop()
	require.Equal(t, 15, query[int](t, before, `SELECT count(*) FROM dispatch_outbox`))

	after := jobstest.NewRigOn(t, before.DSN, before.Broker, jobs.Polling, nil)
	got := after.Some("w", 16, "a")
	assert.ElementsMatch(t, append(pending, later...), idsOf(got), "what was not published is claimed")
	assert.Equal(t, 0, query[int](t, after, `SELECT count(*) FROM dispatch_outbox`))
	status, err := after.Store.DispatchStatus(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(10), status.OtherMode)
	// What was published finishes under its lease, or can be claimed when that ends.
	for _, j := range out[:5] {
		require.NoError(t, after.Complete(t.Context(), jobs.Completion{Holder: holder(j)})[0])
	}
	after.Expire(idsOf(out[5:])...)
	rest := after.Some("w", 5, "a")
	assert.ElementsMatch(t, idsOf(out[5:]), idsOf(rest))
	require.ErrorIs(t, after.Complete(t.Context(), jobs.Completion{Holder: holder(out[5])})[0], jobs.ErrLeaseLost)
	for _, j := range append(got, rest...) {
		require.NoError(t, after.Complete(t.Context(), jobs.Completion{Holder: holder(j)})[0])
	}
	for _, id := range append(published, pending...) {
		assert.Equal(t, jobs.Completed, after.Status(id))
	}
	// A relay that comes back publishes nothing of what is void.
	after.Relay()
	after.Broker.Reject(nil)
	begun := begin(t, after, jobstest.Spec{JobType: "b"})
	assert.Equal(t, begun[0], after.One("w", "b").ID)
	assert.Len(t, after.Broker.Records("a"), 10)
}

func TestPollingVoidsWhatAnotherProcessStillDispatches(t *testing.T) {
	t.Parallel()
	old := kafkaRig(t)
	young := jobstest.NewRigOn(t, old.DSN, old.Broker, jobs.Polling, nil)
	old.StopRelay()
	ids := begin(t, old, jobstest.Spec{JobType: "a"})
	_, err := old.Pool.Exec(t.Context(), `UPDATE jobs SET locked_at = locked_at - interval '1 minute'`)
	require.NoError(t, err)
	old.Stop()
	assert.Equal(t, ids[0], young.One("w", "a").ID)
}

// The first job of a type does not wait for its topic: uploads tell of the types, and so
// does a start. No upload waits for Kafka.
func TestTopicsAreThereBeforeTheFirstJob(t *testing.T) {
	t.Parallel()
	r := jobstest.NewRig(t, jobs.KafkaOutbox, func(t *testing.T, r *jobstest.Rig) jobstest.Actions { return jobstest.NewEngineActions(t, r) })
	r.StopRelay()
	actions, is := r.Actions.(*jobstest.EngineActions)
	require.True(t, is)
	upload := func(jobType string) {
		_, _, err := actions.Definitions.Put(t.Context(), []byte(`{"id":"`+jobType+`","name":"x","steps":[
			{"id":"work","name":"x","type":"SERVICE_TASK","jobType":"`+jobType+`","nextStep":"end"},{"id":"end","name":"x","type":"END"}]}`), "workflow", "ada")
		require.NoError(t, err)
	}
	has := func(jobType string) func() bool {
		return func() bool { return slices.Contains(r.Broker.Topics(), string(jobs.TopicOf(jobType))) }
	}
	r.Broker.Away(true)
	upload("early")
	stop := r.Run(func(ctx context.Context) error { return actions.Engine.RunPreparation(ctx, actions.Definitions) })
	require.Eventually(t, func() bool { return r.Store.Ready(t.Context()) != nil }, patience, time.Millisecond)
	assert.Empty(t, r.Broker.Topics())
	r.Broker.Away(false)
	require.Eventually(t, has("early"), patience, time.Millisecond)
	upload("late")
	require.Eventually(t, has("late"), patience, time.Millisecond)
	stop()

	require.Eventually(t, func() bool { return r.Store.Prepared("late") }, patience, time.Millisecond, "the topic is there before the store knows")
	instance, err := actions.Engine.Start(t.Context(), engine.StartRequest{DefinitionID: "late"})
	require.NoError(t, err)
	assert.Equal(t, jobs.Locked, r.Status(jobs.ID(instance.ID, 1)), "it is dispatched in its own transaction")
}
