package app

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/pipeline"
)

// Two processes share a consumer: whichever owns a partition, a third one sees that
// it is stalled, and at what.
func TestAStallIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, 2)
	s := newStage()
	s.refuses("bad", fmt.Errorf("call postgres://app:hunter2@db/x: %w", pipeline.Infrastructure(errors.New("no route"))))
	c := each(s, "marker")["postgresql"]
	in.start(t, c)
	in.start(t, c)
	operator := in.start(t)
	shared := operator.await(t, "marker", func(s consumers.Status) bool {
		return len(s.Partitions) == 2 && s.Partitions[0].Owner != nil && s.Partitions[1].Owner != nil &&
			s.Partitions[0].Owner.Instance != s.Partitions[1].Owner.Instance && s.State == consumers.Idle
	})
	assert.Equal(t, "millrace-marker", shared.Group)
	assert.Equal(t, "OnTx", shared.Kind)

	in.publish(t, "bad", "fine", "bad", "behind")
	stalled := operator.await(t, "marker", func(s consumers.Status) bool { return s.State == consumers.Stalled && s.Lag == 2 })
	n := int32(slices.IndexFunc(stalled.Partitions, func(p consumers.PartitionStatus) bool { return p.State == consumers.Stalled }))
	p := stalled.Partitions[n]
	assert.Equal(t, int64(1), p.Blocked.Offset)
	assert.Equal(t, "bad", string(p.Blocked.Key))
	assert.Equal(t, "infrastructure", p.Cause.Class)
	assert.Contains(t, p.Cause.Error, "postgres://app:***@db/x: no route")
	assert.Equal(t, shared.Partitions[n].Owner.Instance, p.Owner.Instance)
	assert.NotNil(t, p.StalledSince)
	assert.Equal(t, int64(1), p.Position)
	assert.Equal(t, int64(3), p.End)
	assert.Equal(t, int64(2), p.Lag)
	assert.Equal(t, consumers.Idle, stalled.Partitions[1-n].State)

	s.refuses("bad", nil)
	_, err := operator.Retry(t.Context(), "marker", n, by)
	require.NoError(t, err)
	operator.inState(t, "marker", n, consumers.Idle)
	_, err = operator.Retry(t.Context(), "marker", n, by)
	require.ErrorIs(t, err, consumers.ErrNotStalled)
	_, err = operator.Retry(t.Context(), "nobody", 1, by)
	require.ErrorIs(t, err, consumers.ErrNotFound)
	assert.Equal(t, []string{fmt.Sprintf("ada retry %d DONE why not", n)}, operator.actions(t))
}

// A pause lets what is in flight end, holds everything else in every process, and
// outlives the processes.
func TestPause(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			c := each(s, "marker")[kind]
			first := in.start(t, c)
			operator := in.start(t)
			open := s.holds("a")
			in.publish(t, "k", "a", "b")
			s.sees(t, "a")
			_, err := operator.Pause(t.Context(), "marker", by)
			require.NoError(t, err)
			operator.inState(t, "marker", 0, consumers.Paused)
			_, err = operator.Pause(t.Context(), "marker", by)
			require.ErrorIs(t, err, consumers.ErrPaused)
			open()
			status := operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 1 })
			assert.Equal(t, "ada", status.Paused.By)
			in.publish(t, "k", "c")
			operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 2 })
			first.stop()
			operator.inState(t, "marker", 0, consumers.Unowned)

			in.start(t, c)
			operator.inState(t, "marker", 0, consumers.Paused)
			assert.Empty(t, s.entered, "nothing is handed out while it is paused")
			_, err = operator.Resume(t.Context(), "marker", by)
			require.NoError(t, err)
			s.sees(t, "b")
			s.sees(t, "c")
			operator.inState(t, "marker", 0, consumers.Idle)
			_, err = operator.Resume(t.Context(), "marker", by)
			require.ErrorIs(t, err, consumers.ErrNotPaused)
			_, err = operator.Resume(t.Context(), "nobody", by)
			require.ErrorIs(t, err, consumers.ErrNotFound)
			assert.Equal(t, []string{"ada pause DONE why not", "ada resume DONE why not"}, operator.actions(t))
		})
	}
}

// A position moves while its owner works: what is in flight does not count, and
// the owner goes on where it was told.
func TestSeekWhileOwned(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a", "b", "c", "d")
			s.sees(t, "d")
			operator.inState(t, "marker", 0, consumers.Idle)

			to := consumers.Seek{Consumer: "marker", Partition: consumers.AllPartitions, To: consumers.Target{Beginning: true}, DryRun: true}
			plan, err := operator.Seek(t.Context(), to, by)
			require.NoError(t, err)
			assert.Equal(t, []consumers.Move{{Partition: 0, From: 4, To: 0}}, plan.Moves)
			assert.Equal(t, int64(4), plan.Repeats)
			assert.Len(t, plan.Warnings, 1)
			assert.Empty(t, operator.actions(t), "a dry run does nothing")

			// In flight: e, while the position goes back to c.
			open := s.holds("e")
			in.publish(t, "k", "e", "f")
			s.sees(t, "e")
			offset := int64(2)
			sought := make(chan error, 1)
			go func() {
				_, err := operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{Offset: &offset}}, by)
				sought <- err
			}()
			open()
			require.NoError(t, <-sought)
			s.sees(t, "c")
			s.sees(t, "e")
			s.sees(t, "f")
			operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 0 && s.Partitions[0].Committed == 6 })

			for _, wrong := range []int64{7, 1000} {
				_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{Offset: &wrong}}, by)
				require.ErrorIs(t, err, consumers.ErrOffsetOutOfRange)
			}
			_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 9, To: consumers.Target{End: true}}, by)
			require.ErrorIs(t, err, consumers.ErrNoPartition)
			_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{End: true}}, consumers.Author{Name: "ada"})
			require.ErrorIs(t, err, consumers.ErrNoReason)
			// From where it was when it could be moved, which may be behind f.
			assert.Regexp(t, `^\[ada seek 0 [456] 2 DONE why not\]$`, fmt.Sprint(operator.actions(t)))
		})
	}
}

// Nobody owns the partition: the position moves all the same, to a point in time.
func TestSeekUnowned(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			first := in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a", "b")
			s.sees(t, "b")
			operator.await(t, "marker", func(s consumers.Status) bool { return s.Lag == 0 && s.Partitions[0].Committed == 2 })
			first.stop()
			operator.inState(t, "marker", 0, consumers.Unowned)
			future := time.Now().Add(time.Hour)
			in.publish(t, "k", "c")
			sought, err := operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: 0, To: consumers.Target{Time: &future}}, by)
			require.NoError(t, err)
			assert.Equal(t, int64(1), sought.Skips)
			assert.Equal(t, consumers.Done, sought.Moves[0].Outcome)
			in.start(t, each(s, "marker")[kind])
			in.publish(t, "k", "d")
			timeout := time.After(consumerPatience)
			select {
			case id := <-s.entered:
				assert.Equal(t, "d", id, "c was skipped")
			case <-timeout:
				require.Fail(t, "nothing is handled")
			}
			assert.Equal(t, []string{"ada seek 0 2 3 DONE why not"}, operator.actions(t))
		})
	}
}

// The topic was deleted and made again: the consumer waits, says so, and goes on
// where it is told. A topic that is gone does not hide the others.
func TestATopicThatWasReplaced(t *testing.T) {
	t.Parallel()
	in := newInstallation(t, 1)
	s := newStage()
	c := each(s, "marker")["postgresql"]
	first := in.start(t, c)
	operator := in.start(t)
	in.publish(t, "k", "a", "b")
	s.sees(t, "b")
	operator.inState(t, "marker", 0, consumers.Idle)
	first.stop()

	client, err := kgo.NewClient(kgo.SeedBrokers(in.kafka.Brokers...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopics(t.Context(), "marks")
	require.NoError(t, err)
	operator.await(t, "marker", func(s consumers.Status) bool {
		return s.Partitions[0].State == consumers.Unowned && s.Partitions[0].End == consumers.Unknown && s.BrokerError == ""
	})
	admin, err := kafka.NewAdmin(in.kafka)
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.EnsureTopics(t.Context(), []kafka.TopicConfig{{Name: "marks", Partitions: 1}})
	require.NoError(t, err)
	in.publish(t, "k", "c")

	in.start(t, c)
	p := operator.inState(t, "marker", 0, consumers.OffsetProblem)
	assert.Equal(t, consumers.CodeTopicReplaced, p.Cause.Code)
	assert.Nil(t, p.Blocked)
	_, err = operator.Seek(t.Context(), consumers.Seek{Consumer: "marker", Partition: consumers.AllPartitions, To: consumers.Target{Beginning: true}}, by)
	require.NoError(t, err)
	s.sees(t, "c")
	operator.inState(t, "marker", 0, consumers.Idle)
}

// The record at which a partition is stalled, and no other, becomes a dead letter.
func TestDeadLetterByOrder(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			s.refuses("b", errors.New("the account is closed"))
			in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a", "b", "c")
			operator.inState(t, "marker", 0, consumers.Stalled)
			for _, wrong := range []int64{0, 2} {
				_, err := operator.DeadLetter(t.Context(), "marker", 0, wrong, by)
				require.ErrorIs(t, err, consumers.ErrNotBlocked)
			}
			_, err := operator.DeadLetter(t.Context(), "marker", 0, 1, consumers.Author{Name: "ada"})
			require.ErrorIs(t, err, consumers.ErrNoReason)
			r, err := operator.DeadLetter(t.Context(), "marker", 0, 1, by)
			require.NoError(t, err)
			require.Equal(t, consumers.Done, r.Outcome, r.Detail)
			s.sees(t, "c")
			operator.inState(t, "marker", 0, consumers.Idle)
			assert.Equal(t, []string{"ada dead_letter 0 1 DONE why not"}, operator.actions(t))
			if kind == "kafka" {
				assert.Equal(t, int64(1), operator.published(t), "the letter is durable before the record is passed")
			} else {
				assert.Equal(t, []string{"1 handler dead-lettered by ada: why not (before: the account is closed)"},
					rowsOf(t, operator.pool, `SELECT concat_ws(' ', "offset", class, reason) FROM dead_letters`))
			}
		})
	}
}

// While the order is under way, the record succeeds after all: then there is no
// dead letter.
func TestDeadLetterComesTooLate(t *testing.T) {
	t.Parallel()
	for kind := range each(nil, "") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			in := newInstallation(t, 1)
			s := newStage()
			s.refuses("a", errors.New("not yet"))
			in.start(t, each(s, "marker")[kind])
			operator := in.start(t)
			in.publish(t, "k", "a")
			operator.inState(t, "marker", 0, consumers.Stalled)
			open := s.holds("a")
			for len(s.entered) > 0 {
				<-s.entered // tries that did not meet the gate
			}
			_, err := operator.Retry(t.Context(), "marker", 0, by)
			require.NoError(t, err)
			s.sees(t, "a") // a try is under way, and waits
			ended := make(chan consumers.Result, 1)
			go func() {
				r, err := operator.DeadLetter(t.Context(), "marker", 0, 0, by)
				assert.NoError(t, err)
				ended <- r
			}()
			require.Eventually(t, func() bool {
				return len(rowsOf(t, operator.pool, `SELECT action FROM consumer_actions WHERE action = 'dead_letter'`)) == 1
			}, consumerPatience, 10*time.Millisecond)
			s.refuses("a", nil)
			open()
			r := <-ended
			assert.Equal(t, consumers.Refused, r.Outcome)
			assert.Equal(t, pipeline.ErrNotBlocked.Error(), r.Detail)
			operator.inState(t, "marker", 0, consumers.Idle)
			assert.Empty(t, rowsOf(t, operator.pool, `SELECT reason FROM dead_letters`))
			assert.Zero(t, operator.published(t))
		})
	}
}
