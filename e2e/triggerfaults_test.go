package e2e

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
)

// What happens to the topics, the group and the messages of Kafka triggers, while another
// process comes, takes its part of everything, and leaves.
func TestTriggersOverTheirFaults(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(in *installation) {
		p := in.host("first").ready()
		faults := map[string]func(*installation, *process){
			"one partition of twelve stands over a rebalance": (*installation).onePartitionStands,
			"the group forgets its offsets or is set back":    (*installation).offsetsAreLost,
			"the topic is made anew":                          (*installation).topicIsMadeAnew,
		}
		in.t.Run("faults", func(t *testing.T) {
			for name, fault := range faults {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					fault(in.at(t), p)
				})
			}
		})
		in.holds()
		in.stopAll()
	})
}

// A message that the mapping does not fit stalls its partition; the other eleven go on, also
// while a second member joins and leaves. The message is made as soon as the mapping fits.
func (in *installation) onePartitionStands(p *process) {
	t, api := in.t, p.client()
	const partitions, standing = 12, 5
	orders := in.numbered("stands", partitions)
	stall := map[string]any{"on_poison": "stall", "members": 2, "target": functionOf("${body.order.n}")}
	orders.apply(api, nil, stall)
	orders.sendAll(2)
	orders.write(standing, 1, `{"n": %d, "text": %q}`)
	first := orders.next - 1
	// Those that are behind the one that stands, and so wait.
	waiting := func() int { return len(orders.sent[standing]) - 2 }
	others := func(when string) {
		orders.sendAll(2)
		await(t, stuckAfter, "eleven partitions go on "+when, func() bool { return len(in.made(orders.id)) >= orders.next-waiting() })
		at := orders.stands(api, standing, "poison")
		assert.EqualValues(t, 2, at.Offset, when)
		assert.LessOrEqual(t, orders.committed()[standing], 2, when)
		await(t, stuckAfter, "what was taken is committed "+when, func() bool { return orders.committed()[standing] == 2 })
		assert.Len(t, in.made(orders.id), orders.next-waiting(), "nothing behind it is made, %s", when)
	}
	began := time.Now()
	phase := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }
	others("beside it")

	phase("a second process comes")
	second := in.host("second").ready()
	await(t, stuckAfter, "two members share the partitions", func() bool {
		status, ok := orders.status(api)
		if !ok || len(status.Members) != 2 || slices.ContainsFunc(status.Members, func(m client.TriggerMember) bool { return m.State != "running" }) {
			return false
		}
		share := map[int]int{}
		for _, p := range status.Partitions {
			if p.State == "running" || p.State == "error" {
				share[p.Member]++
			}
		}
		return share[0] == partitions/2 && share[1] == partitions/2
	})
	phase("it has a member, and half of the partitions")
	others("while two share them")
	phase("it stops")
	second.stop()
	phase("it has stopped")
	others("when one has left")

	phase("the mapping is mended")
	stall["target"] = functionOf("${body.n}")
	orders.apply(api, nil, stall)
	orders.done()
	assert.Equal(t, 1, in.count(`SELECT count(*) FROM executions WHERE request->'origin'->>'trigger' = $1
		AND request->'spec'->'args'->>'n' = $2::text`, orders.id, strconv.Itoa(first)))
	await(t, stuckAfter, "no partition stands any more", func() bool {
		status, ok := orders.status(api)
		return ok && !slices.ContainsFunc(status.Partitions, func(p client.TriggerPartition) bool { return p.State == "error" })
	})
}

// The broker forgets where a group was that has been away for long, or somebody sets it back:
// what was not read is read, and what comes again is known.
func (in *installation) offsetsAreLost(p *process) {
	t, api := in.t, p.client()
	orders := in.numbered("forgotten", 2)
	orders.apply(api, map[string]any{"from": "latest"}, nil)
	orders.runs(api)
	orders.sendAll(5)
	orders.done()
	in.resting(orders, p, func(admin *kadm.Client) {
		orders.sendAll(3)
		deleted, err := admin.DeleteGroup(t.Context(), orders.group())
		require.NoError(t, err)
		require.NoError(t, deleted.Err)
	})
	orders.sendAll(1)
	in.once(orders.id, orders.next)
	orders.runs(api)
	orders.done()

	in.resting(orders, p, func(admin *kadm.Client) {
		var start kadm.Offsets
		start.AddOffset(orders.id, 0, 0, -1)
		start.AddOffset(orders.id, 1, 4, -1)
		require.NoError(t, admin.CommitAllOffsets(t.Context(), orders.group(), start))
		require.Equal(t, []int{0, 4}, orders.committed())
	})
	orders.sendAll(1)
	orders.done()
}

// resting does something while a trigger is switched off and its group is empty.
func (in *installation) resting(s *numbered, p *process, do func(*kadm.Client)) {
	t, api := in.t, p.client()
	t.Helper()
	_, err := api.SwitchTrigger(t.Context(), s.id, false)
	require.NoError(t, err)
	in.asked(func(_ *kgo.Client, admin *kadm.Client) {
		await(t, stuckAfter, "the group is empty", func() bool {
			groups, err := admin.DescribeGroups(t.Context(), s.group())
			return err == nil && groups[s.group()].State == "Empty"
		})
		do(admin)
	})
	_, err = api.SwitchTrigger(t.Context(), s.id, true)
	require.NoError(t, err)
}

// A topic is deleted and made anew, under the running trigger and under one that is switched
// off: its offsets begin anew, and what they had stood for before means nothing.
func (in *installation) topicIsMadeAnew(p *process) {
	t, api := in.t, p.client()
	orders := in.numbered("anew", 2)
	orders.apply(api, nil, nil)
	orders.sendAll(5)
	orders.done()
	anew := func() {
		in.deleteTopic(orders.id)
		in.createTopic(orders.id, 2)
		orders.sendAll(3)
	}
	in.deleteTopic(orders.id)
	await(t, stuckAfter, "the trigger says that its topic is gone", func() bool {
		status, err := api.TriggerStatus(t.Context(), orders.id)
		return err == nil && status.State == "error" && status.Cause != nil && status.Cause.Code == "topic_missing"
	})
	in.createTopic(orders.id, 2)
	orders.sendAll(3)
	in.once(orders.id, orders.next)
	in.resting(orders, p, func(*kadm.Client) { anew() })
	orders.sendAll(1)
	in.once(orders.id, orders.next)
	orders.inOrder()
	await(t, stuckAfter, "the group has the new topic's offsets", func() bool { return slices.Equal([]int{4, 4}, orders.committed()) })
	orders.runs(api)
}
