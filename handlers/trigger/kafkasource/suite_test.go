package kafkasource_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/handlers/trigger/kafkasource"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/internal/trigger"
)

func TestSuiteOnEmbeddedBroker(t *testing.T) {
	t.Parallel()
	suite(t, testenv.Broker(t))
}

func TestSuiteOnRealKafka(t *testing.T) { suite(t, realkafka.Shared(t)) }

func suite(t *testing.T, addrs []string) {
	for name, test := range map[string]func(*bench){
		"a message is committed only once it is made": testCommitAfterCreate,
		"a blocked message stalls its partition only": testBlockedStallsItsPartitionOnly,
		"a database that is down stalls and goes on":  testStorage,
		"a panic stalls its partition only":           testPanic,
		"a takeover needs no session to end":          testTakeover,
		"a rebalance during a stall":                  testRebalanceDuringAStall,
		"messages that were removed unread":           testRemovedUnread,
		"a topic that is made anew while it is read":  testTopicMadeAnew,
		"a topic that was made anew meanwhile":        testTopicMadeAnewMeanwhile,
		"a topic that is made anew behind a stall":    testTopicMadeAnewBehindAStall,
		"a topic that is missing":                     testMissingTopic,
		"partitions that a topic gets":                testMorePartitions,
		"offsets that have expired":                   testExpiredOffsets,
		"what is asleep is warned of":                 testDormant,
		"a rate is not exceeded":                      testRate,
		"what was aborted starts nothing":             testTransactions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newBench(t, addrs))
		})
	}
}

func testCommitAfterCreate(b *bench) {
	b.create(1)
	b.publish(0, values("a", 40)...)
	b.made.failWith(func(value string, _ ingest.Message) error {
		if value == "a25" {
			return errors.New("the connection was reset")
		}
		return nil
	})
	r := b.run(b.compile(nil), 0)
	p := r.partitionIs(b.topic, 0, trigger.StateError, "storage")
	require.EqualValues(b, 25, p.Offset)
	b.committedIs(0, 25)
	b.made.failWith(nil)
	b.has(b.topic, 0, values("a", 40)...)
	b.committedIs(0, 40)
	p = r.partitionIs(b.topic, 0, trigger.StateRunning, "")
	require.Nil(b, p.Key)
	r.until("the end is known", func(m trigger.MemberReport) bool {
		p, ok := partitionOf(m, b.topic, 0)
		return ok && p.Offset == 40 && p.Committed == 40 && p.End == 40
	})
	report := r.memberIs(trigger.StateRunning, "")
	assert.NotEmpty(b, report.Effective)
	assert.Len(b, p.TopicID, 32)
	b.made.mu.Lock()
	defer b.made.mu.Unlock()
	for _, m := range b.made.all {
		assert.NotEmpty(b, m.Place.Cluster)
		assert.Equal(b, p.TopicID, fmt.Sprintf("%x", m.Place.TopicID))
		assert.Empty(b, m.Identity)
		assert.NoError(b, m.Poison)
	}
}

// The neighbours of a partition that stands go on, however many there are.
func testBlockedStallsItsPartitionOnly(b *bench) {
	const partitions, stalled = 12, 5
	b.create(partitions)
	b.made.failWith(blockedBy("limit_reached", "p5-3"))
	r := b.run(b.compile(nil), 0)
	for round := range 3 {
		for id := range int32(partitions) {
			b.publish(id, fmt.Sprintf("p%d-%d", id, 2*round), fmt.Sprintf("p%d-%d", id, 2*round+1))
		}
		for id := range int32(partitions) {
			if id != stalled {
				b.has(b.topic, id, values(fmt.Sprintf("p%d-", id), 2*round+2)...)
			}
		}
	}
	p := r.partitionIs(b.topic, stalled, trigger.StateError, "limit_reached")
	assert.Equal(b, []any{int64(3), "key of p5-3"}, []any{p.Offset, string(p.Key)})
	assert.Equal(b, &trigger.Cause{Code: "limit_reached", Message: "no more than 3 may be open", Hint: "wait"}, p.Cause)
	assert.Positive(b, p.Attempts)
	assert.False(b, p.Since.IsZero())
	b.committedIs(stalled, 3)
	report := r.until("there is a next try, and the end is known", func(m trigger.MemberReport) bool {
		p, _ := partitionOf(m, b.topic, stalled)
		return !p.NextTry.IsZero() && p.End == 6
	})
	assert.Equal(b, trigger.StateRunning, report.State, "the member itself is well")
	again, _ := partitionOf(report, b.topic, stalled)
	assert.Equal(b, p.Since, again.Since, "it stands since it has stood")
	assert.Equal(b, values("p5-", 3), b.made.of(b.topic, stalled), "nothing is passed over")

	b.made.failWith(nil)
	b.has(b.topic, stalled, values("p5-", 6)...)
	r.partitionIs(b.topic, stalled, trigger.StateRunning, "")
	b.committedIs(stalled, 6)
}

func testStorage(b *bench) {
	b.create(2)
	b.made.failWith(func(string, ingest.Message) error { return errors.New("connect: connection refused password=canary") })
	r := b.run(b.compile(nil), 0)
	b.publish(0, values("a", 3)...)
	b.publish(1, values("b", 3)...)
	for id := range int32(2) {
		p := r.partitionIs(b.topic, id, trigger.StateError, "storage")
		assert.Contains(b, p.Cause.Message, "connection refused")
		assert.NotContains(b, p.Cause.Message, "canary")
		assert.NotEmpty(b, p.Cause.Hint)
	}
	r.until("it is tried again", func(m trigger.MemberReport) bool {
		p, _ := partitionOf(m, b.topic, 0)
		return p.Attempts >= 4
	})
	b.made.failWith(nil)
	b.has(b.topic, 0, values("a", 3)...)
	b.has(b.topic, 1, values("b", 3)...)
}

func testPanic(b *bench) {
	b.create(2)
	b.made.failWith(func(value string, _ ingest.Message) error {
		if value == "a1" {
			panic("nobody thought of that")
		}
		return nil
	})
	r := b.run(b.compile(nil), 0)
	b.publish(0, values("a", 3)...)
	b.publish(1, values("b", 3)...)
	b.has(b.topic, 1, values("b", 3)...)
	p := r.partitionIs(b.topic, 0, trigger.StateError, "panic")
	assert.Contains(b, p.Cause.Message, "nobody thought of that")
	b.made.failWith(nil)
	b.has(b.topic, 0, values("a", 3)...)
}

// A member that comes under the number of one that is still there, as after a process
// that was taken for dead, has the partitions at once. The former one does no more.
func testTakeover(b *bench) {
	b.create(2)
	b.config.SessionTimeout = time.Minute
	b.made.failWith(blockedBy("limit_reached", "a1"))
	b.publish(0, values("a", 3)...)
	b.publish(1, values("b", 3)...)
	former := b.run(b.compile(nil), 0)
	former.partitionIs(b.topic, 0, trigger.StateError, "limit_reached")
	b.has(b.topic, 1, values("b", 3)...)
	b.committedIs(0, 1)

	heir := b.run(b.compile(nil), 0)
	heir.partitionIs(b.topic, 0, trigger.StateError, "limit_reached")
	former.until("the former one is told", func(m trigger.MemberReport) bool {
		return codeOf(m.Cause) == "replaced" && len(m.Partitions) == 0
	})
	b.publish(1, "b3")
	b.made.failWith(nil)
	b.has(b.topic, 0, values("a", 3)...)
	b.has(b.topic, 1, values("b", 4)...)
	former.stop()
	b.publish(0, "a3")
	b.has(b.topic, 0, values("a", 4)...)
	heir.memberIs(trigger.StateRunning, "")
}

// A stall is handed on with its partition: the new owner tries it, the former one no more.
func testRebalanceDuringAStall(b *bench) {
	b.create(4)
	b.made.failWith(blockedBy("limit_reached", "stuck"))
	t := b.compile(nil)
	first := b.run(t, 0)
	for id := range int32(4) {
		b.publish(id, "fine", "stuck")
	}
	for id := range int32(4) {
		first.partitionIs(b.topic, id, trigger.StateError, "limit_reached")
	}
	second := b.run(t, 1)
	shares := second.until("it has its share", func(m trigger.MemberReport) bool { return len(m.Partitions) == 2 }).Partitions
	first.until("it has given up the rest", func(m trigger.MemberReport) bool { return len(m.Partitions) == 2 })
	for _, p := range shares {
		second.partitionIs(p.Topic, p.Partition, trigger.StateError, "limit_reached")
	}
	// Whoever still tried without owning would be found by what it is told now.
	second.stop()
	first.until("it has everything again", func(m trigger.MemberReport) bool { return len(m.Partitions) == 4 })
	first.stop()
	calls := make([]int, 4)
	for id := range calls {
		calls[id] = b.made.callsOf(b.topic, int32(id))
	}
	third := b.run(t, 0)
	for id := range int32(4) {
		third.partitionIs(b.topic, id, trigger.StateError, "limit_reached")
	}
	third.stop()
	b.made.failWith(nil)
	last := b.run(t, 1)
	for id := range int32(4) {
		b.has(b.topic, id, "fine", "stuck")
		last.partitionIs(b.topic, id, trigger.StateRunning, "")
		b.committedIs(id, 2)
	}
}

// Messages that the broker has removed before they were read are not skipped silently.
func testRemovedUnread(b *bench) {
	b.create(2)
	b.publish(0, values("a", 10)...)
	b.publish(1, values("b", 2)...)
	b.made.failWith(blockedBy("limit_reached", "a3"))
	r := b.run(b.compile(nil), 0)
	r.partitionIs(b.topic, 0, trigger.StateError, "limit_reached")
	b.committedIs(0, 3)
	r.stop()
	var gone kadm.Offsets
	gone.AddOffset(b.topic, 0, 7, -1)
	_, err := b.kadm.DeleteRecords(b.Context(), gone)
	require.NoError(b, err)
	b.made.failWith(nil)

	r = b.run(b.compile(nil), 0)
	p := r.partitionIs(b.topic, 0, trigger.StateError, "offset_out_of_range")
	assert.EqualValues(b, 3, p.Offset)
	assert.Contains(b, p.Cause.Message, "[7, 10)")
	assert.Contains(b, p.Cause.Hint, "reset-offsets")
	b.publish(1, "b2")
	b.has(b.topic, 1, values("b", 3)...)
	assert.Equal(b, values("a", 3), b.made.of(b.topic, 0))
	r.stop()
	require.EqualValues(b, 3, b.committed(b.topic, 0))

	// Somebody decides, as the hint says.
	var decided kadm.Offsets
	decided.AddOffset(b.topic, 0, 8, -1)
	require.NoError(b, b.kadm.CommitAllOffsets(b.Context(), b.group, decided))
	r = b.run(b.compile(nil), 0)
	b.has(b.topic, 0, "a0", "a1", "a2", "a8", "a9")
	r.partitionIs(b.topic, 0, trigger.StateRunning, "")
}

func testTopicMadeAnew(b *bench) {
	b.create(1)
	other := "other-" + b.topic
	b.create(1, other)
	b.publish(0, "a0", "a1")
	r := b.run(b.compile(func(k *trigger.Kafka) { k.Topics = append(k.Topics, other) }), 0)
	b.has(b.topic, 0, "a0", "a1")
	b.committedIs(0, 2)
	b.drop(b.topic)
	r.memberIs(trigger.StateError, "topic_missing")
	b.publishTo(other, 0, "o0")
	b.has(other, 0, "o0")
	b.create(1)
	b.publish(0, "new0")
	b.has(b.topic, 0, "a0", "a1", "new0")
	r.memberIs(trigger.StateRunning, "")
	r.partitionIs(b.topic, 0, trigger.StateRunning, "")
	b.publish(0, "new1", "new2", "new3")
	b.has(b.topic, 0, "a0", "a1", "new0", "new1", "new2", "new3")
	b.committedIs(0, 4)
}

func testTopicMadeAnewMeanwhile(b *bench) {
	b.create(1)
	latest := b.compile(func(k *trigger.Kafka) { k.From = "latest" })
	r := b.run(latest, 0)
	r.partitionIs(b.topic, 0, trigger.StateRunning, "")
	b.publish(0, "a0", "a1", "a2")
	b.has(b.topic, 0, "a0", "a1", "a2")
	b.committedIs(0, 3)
	r.stop()
	b.drop(b.topic)
	b.create(1)
	b.publish(0, "b0", "b1", "b2", "b3", "b4")
	r = b.run(latest, 0)
	b.has(b.topic, 0, "a0", "a1", "a2", "b0", "b1", "b2", "b3", "b4")
	r.until("people are told", func(m trigger.MemberReport) bool {
		return len(m.Notes) == 1 && m.Notes[0].Code == "topic_recreated"
	})
	r.partitionIs(b.topic, 0, trigger.StateRunning, "")
	b.committedIs(0, 5)
}

func testMissingTopic(b *bench) {
	r := b.run(b.compile(nil), 0)
	m := r.memberIs(trigger.StateError, "topic_missing")
	assert.Contains(b, m.Cause.Message, b.topic)
	assert.NotEmpty(b, m.Cause.Hint)
	assert.False(b, m.NextTry.IsZero())
	b.create(1)
	b.publish(0, "a0")
	b.has(b.topic, 0, "a0")
	r.memberIs(trigger.StateRunning, "")
}

func testMorePartitions(b *bench) {
	b.create(1)
	r := b.run(b.compile(func(k *trigger.Kafka) { k.From = "latest" }), 0)
	r.partitionIs(b.topic, 0, trigger.StateRunning, "")
	answers, err := b.kadm.UpdatePartitions(b.Context(), 3, b.topic)
	require.NoError(b, err)
	require.NoError(b, answers.Error())
	require.EventuallyWithT(b, func(c *assert.CollectT) {
		details, err := b.kadm.ListTopics(b.Context(), b.topic)
		require.NoError(c, err)
		require.Len(c, details[b.topic].Partitions, 3)
	}, patience, 20*time.Millisecond)
	b.publish(2, "c0")
	b.has(b.topic, 2, "c0")
	r.partitionIs(b.topic, 2, trigger.StateRunning, "")
}

// A group whose offsets the brokers have forgotten goes on where the trigger was, wherever
// it is to begin for the first time.
func testExpiredOffsets(b *bench) {
	b.create(2)
	latest := b.compile(func(k *trigger.Kafka) { k.From = "latest" })
	r := b.run(latest, 0)
	r.partitionIs(b.topic, 0, trigger.StateRunning, "")
	r.partitionIs(b.topic, 1, trigger.StateRunning, "")
	b.publish(0, "a0", "a1")
	b.has(b.topic, 0, "a0", "a1")
	b.committedIs(0, 2)
	r.stop() // at once: what it has not reported yet it says at its end
	b.publish(0, "a2", "a3")
	b.publish(1, "b0")
	require.EventuallyWithT(b, func(c *assert.CollectT) {
		_, err := b.kadm.DeleteGroup(b.Context(), b.group)
		require.NoError(c, err)
	}, patience, 20*time.Millisecond)
	require.EqualValues(b, -1, b.committed(b.topic, 0))

	// Without the positions it could not begin at all, rather than somewhere else.
	away := b.config
	away.Positions = func(context.Context, string) ([]trigger.PartitionReport, error) {
		return nil, errors.New("the database is away")
	}
	r = b.runWith(away, latest, 0)
	r.partitionIs(b.topic, 0, trigger.StateError, "storage")
	r.stop()

	r = b.run(latest, 0)
	b.has(b.topic, 0, values("a", 4)...)
	b.has(b.topic, 1, "b0")
	b.committedIs(0, 4)
	r.until("people are told", func(m trigger.MemberReport) bool {
		return len(m.Notes) == 2 && m.Notes[0].Code == "offsets_expired"
	})
	assert.Equal(b, 5, b.made.callsOf(b.topic, 0)+b.made.callsOf(b.topic, 1), "nothing was read twice")
}

func testDormant(b *bench) {
	b.create(1)
	b.publish(0, "a0", "a1", "a2")
	t := b.compile(nil)
	source := kafkasource.New(b.config)
	dormant := func(since time.Duration) []trigger.Cause {
		notes, err := source.Dormant(b.Context(), t, time.Now().Add(-since))
		require.NoError(b, err)
		return notes
	}
	assert.Empty(b, dormant(time.Hour))
	assert.Empty(b, dormant(6*24*time.Hour), "there are no offsets yet")
	b.made.failWith(blockedBy("limit_reached", "a1"))
	r := b.run(t, 0)
	b.committedIs(0, 1)
	r.stop()
	assert.Empty(b, dormant(4*24*time.Hour))
	notes := dormant(6 * 24 * time.Hour)
	require.Len(b, notes, 1)
	assert.Equal(b, "offsets_expire", notes[0].Code)
	assert.Contains(b, notes[0].Message, "2 messages wait")
	require.EventuallyWithT(b, func(c *assert.CollectT) {
		_, err := b.kadm.DeleteGroup(b.Context(), b.group)
		require.NoError(c, err)
	}, patience, 20*time.Millisecond)
	notes = dormant(8 * 24 * time.Hour)
	require.Len(b, notes, 1)
	assert.Equal(b, "offsets_expired", notes[0].Code)
}

// The rate is that of the member, over all partitions: a batch is never larger than what may
// come at once.
func testRate(b *bench) {
	b.create(3)
	for id := range int32(3) {
		b.publish(id, values(fmt.Sprintf("p%d-", id), 60)...)
	}
	began := time.Now()
	b.run(b.compile(func(k *trigger.Kafka) { k.RateLimitPerSecond = 150 }), 0)
	for id := range int32(3) {
		b.has(b.topic, id, values(fmt.Sprintf("p%d-", id), 60)...)
	}
	// 15 at once, and 165 at 150 a second: less can only be too fast.
	assert.Greater(b, time.Since(began), time.Second)
	b.made.mu.Lock()
	defer b.made.mu.Unlock()
	for _, size := range b.made.sizes {
		assert.LessOrEqual(b, size, 15)
	}
}

// Messages that were fetched before their topic was deleted are nowhere else: they are made
// before the topic is taken up anew.
func testTopicMadeAnewBehindAStall(b *bench) {
	b.create(1)
	b.publish(0, "a0", "a1", "a2")
	b.made.failWith(blockedBy("limit_reached", "a1"))
	r := b.run(b.compile(nil), 0)
	r.partitionIs(b.topic, 0, trigger.StateError, "limit_reached")
	b.drop(b.topic)
	r.memberIs(trigger.StateError, "topic_missing")
	b.create(1)
	b.publish(0, "new0")
	r.memberIs(trigger.StateRunning, "")
	p := r.partitionIs(b.topic, 0, trigger.StateError, "limit_reached")
	require.EqualValues(b, 1, p.Offset)
	b.made.failWith(nil)
	b.has(b.topic, 0, "a0", "a1", "a2", "new0")
	b.committedIs(0, 1)
}

// A message of a transaction that was aborted was never sent. The ends of transactions take
// places in the log, and are not waited for.
func testTransactions(b *bench) {
	b.create(1)
	write := func(end kgo.TransactionEndTry, value string) {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.TransactionalID("writer of "+b.topic), kgo.DefaultProduceTopic(b.topic))
		require.NoError(b, err)
		defer client.Close()
		require.NoError(b, client.BeginTransaction())
		require.NoError(b, client.ProduceSync(b.Context(), kgo.StringRecord(`{"n":"`+value+`"}`)).FirstErr())
		require.NoError(b, client.EndTransaction(b.Context(), end))
	}
	write(kgo.TryAbort, "no")
	write(kgo.TryCommit, "a0")
	r := b.run(b.compile(nil), 0)
	b.has(b.topic, 0, "a0")
	write(kgo.TryAbort, "no")
	write(kgo.TryCommit, "a1")
	b.has(b.topic, 0, "a0", "a1")
	b.committedIs(0, 8)
	r.until("nothing is left", func(m trigger.MemberReport) bool {
		p, _ := partitionOf(m, b.topic, 0)
		return p.State == trigger.StateRunning && p.Offset == 8 && p.End == 8
	})
}
