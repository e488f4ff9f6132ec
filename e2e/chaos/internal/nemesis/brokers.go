package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/millrace/e2e/chaos/internal/workload"
	"github.com/millrace/millrace/e2e/chaos/internal/world"
)

func brokerCases() []Case {
	return []Case{
		{ID: "B1", Title: "a broker is stopped, killed or frozen, and comes back", Lane: Servers, act: hurtBroker},
		{ID: "B2", Title: "the leader of a partition is killed, then two of three brokers", Lane: Servers, Brokers: 3, act: killLeaders},
		{ID: "B3", Title: "the controller is killed; a broker is slow", Lane: Servers, act: slowBroker},
		{ID: "B4", Title: "groups are deleted, the topic is truncated beyond the position", Lane: Alone, act: loseOffsets},
		{ID: "B5", Title: "a topic grows, then is deleted and made anew", Lane: Alone, act: changeTopic},
		{ID: "B6", Title: "events are larger than the broker takes, and its limit is lowered", Lane: Servers, act: oversize},
	}
}

// kafka is a client beside the links, for what a person does with Kafka's tools.
func (l *lane) kafka() (*kgo.Client, *kadm.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(l.World.Kafka.Addrs()...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, nil, err
	}
	return client, kadm.NewClient(client), nil
}

func hurtBroker(ctx context.Context, l *lane) error {
	i, cluster := l.rng.IntN(l.World.Brokers), l.World.Kafka
	heal, cancel := healing(ctx)
	defer cancel()
	switch l.rng.IntN(3) {
	case 0:
		l.fault("stop broker %d in order", i)
		if err := cluster.Stop(i); err != nil {
			return err
		}
	case 1:
		l.fault("kill broker %d", i)
		l.World.Kills.Add(1)
		if err := cluster.Kill(i); err != nil {
			return err
		}
	default:
		l.fault("freeze broker %d", i)
		if err := cluster.Pause(i); err != nil {
			return err
		}
		l.hold(ctx, 5*time.Second, 20*time.Second)
		return cluster.Resume(i)
	}
	l.hold(ctx, 0, 3*time.Second)
	return cluster.Restart(heal, i)
}

func killLeaders(ctx context.Context, l *lane) error {
	client, admin, err := l.kafka()
	if err != nil {
		return err
	}
	defer client.Close()
	details, err := admin.ListTopics(ctx, string(workload.Ledger))
	if err != nil {
		l.note("%v", err)
		return nil
	}
	leader := int(details[string(workload.Ledger)].Partitions[0].Leader) - 1
	if leader < 0 {
		return nil
	}
	if err := l.downBrokers(ctx, leader); err != nil {
		return err
	}
	l.hold(ctx, 2*time.Second, 4*time.Second)
	if ctx.Err() != nil {
		return nil
	}
	two := l.rng.Perm(l.World.Brokers)[:2]
	return l.downBrokers(ctx, two...)
}

func (l *lane) downBrokers(ctx context.Context, which ...int) error {
	heal, cancel := healing(ctx)
	defer cancel()
	for _, i := range which {
		l.fault("kill broker %d", i)
		l.World.Kills.Add(1)
		if err := l.World.Kafka.Kill(i); err != nil {
			return err
		}
	}
	l.hold(ctx, 3*time.Second, 8*time.Second)
	var errs []error
	for _, i := range which {
		errs = append(errs, l.World.Kafka.Restart(heal, i))
	}
	return errors.Join(errs...)
}

func slowBroker(ctx context.Context, l *lane) error {
	if l.World.Brokers > 1 && l.rng.IntN(2) == 0 {
		return l.killController(ctx)
	}
	i := l.rng.IntN(l.World.Brokers)
	for _, link := range []string{world.LinkA, world.LinkB} {
		heal := l.World.Links.Inject(link, world.Kafka, i, world.Latency(world.ToClient, 200*time.Millisecond))
		defer heal()
	}
	l.fault("broker %d answers late", i)
	l.hold(ctx, 4*time.Second, 8*time.Second)
	return nil
}

func (l *lane) killController(ctx context.Context) error {
	client, _, err := l.kafka()
	if err != nil {
		return err
	}
	defer client.Close()
	request := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	request.Topics = []kmsg.DescribeQuorumRequestTopic{topic}
	answer, err := request.RequestWith(ctx, client)
	if err != nil || len(answer.Topics) == 0 || len(answer.Topics[0].Partitions) == 0 {
		l.note("no controller is known: %v", err)
		return nil
	}
	l.note("the controller is killed")
	return l.downBrokers(ctx, int(answer.Topics[0].Partitions[0].LeaderID)-1)
}

// oversize enqueues what the broker refuses, with an event behind it, and later
// gives it up by the API; then it lowers the limit of the topic for a while.
func oversize(ctx context.Context, l *lane) error {
	key := fmt.Sprintf("big-%d", l.rng.Uint64())
	l.fault("enqueue an event of 1.5 MiB for %s", key)
	big, err := l.Producer.Commit(ctx, workload.Ledger, key, workload.Entry{Kind: workload.Oversize, Pad: strings.Repeat("z", 3<<19)})
	if err != nil {
		return nil
	}
	behind, err := l.Producer.Commit(ctx, workload.Ledger, key, workload.Entry{Kind: workload.Plain})
	if err != nil {
		return nil
	}
	heal, cancel := healing(ctx)
	defer cancel()
	var lowered error
	if l.rng.IntN(2) == 0 {
		lowered = l.lowerLimit(ctx)
	}
	err = until(heal, patience, "the event is refused and then skipped", func() (bool, error) { return l.skipEvent(heal, big) })
	if err != nil {
		return errors.Join(lowered, err)
	}
	return errors.Join(lowered, until(heal, patience, "the event behind is published", func() (bool, error) {
		n, err := workload.Count(heal, l.World.DB, `SELECT count(*) FROM outbox_events WHERE id = $1 AND status = 'PUBLISHED'`, behind)
		return n == 1, err
	}))
}

func (l *lane) skipEvent(ctx context.Context, eventID string) (bool, error) {
	var seq int64
	var status string
	if err := l.World.DB.QueryRow(ctx, `SELECT seq, status FROM outbox_events WHERE id = $1`, eventID).Scan(&seq, &status); err != nil {
		return false, err
	}
	switch status {
	case "SKIPPED":
		return true, nil
	case "PUBLISHED":
		return false, errors.New("it was published")
	case "FAILED":
	default:
		return false, nil
	}
	clients := l.Requests.Clients()
	err := clients[l.rng.IntN(len(clients))].SkipOutboxEvent(ctx, seq, "larger than the broker takes")
	return false, err // and look again: the answer may have been lost
}

// lowerLimit has the broker refuse what it took before, and raises the limit again:
// what was refused meanwhile is tried again by the API.
func (l *lane) lowerLimit(ctx context.Context) error {
	client, admin, err := l.kafka()
	if err != nil {
		return err
	}
	defer client.Close()
	heal, cancel := healing(ctx)
	defer cancel()
	limit := func(change kadm.AlterConfig) error {
		return until(heal, patience, "the limit is changed", func() (bool, error) {
			answers, err := admin.AlterTopicConfigs(heal, []kadm.AlterConfig{change}, string(workload.Ledger))
			if err == nil && len(answers) > 0 {
				err = answers[0].Err
			}
			return err == nil, err
		})
	}
	low := "10000"
	l.fault("the broker takes no more than %s bytes", low)
	if err := limit(kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &low}); err != nil {
		return err
	}
	l.hold(ctx, 3*time.Second, 6*time.Second)
	l.note("the broker takes what it took before")
	if err := limit(kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "max.message.bytes"}); err != nil {
		return err
	}
	return until(heal, patience, "what was refused is tried again", func() (bool, error) {
		left, err := workload.Count(heal, l.World.DB, `SELECT count(*) FROM outbox_events WHERE status = 'FAILED' AND octet_length(payload) < 1000000`)
		if err != nil || left == 0 {
			return err == nil, err
		}
		clients := l.Requests.Clients()
		_, err = clients[l.rng.IntN(len(clients))].RetryFailedOutboxEvents(heal, string(workload.Ledger), "the limit was raised")
		return false, err
	})
}

// stopConsumers stops all consumer processes in order, and starts the same again.
func (l *lane) stopConsumers(ctx context.Context) (start func() error, err error) {
	var were []*world.Member
	for _, m := range l.World.Part(world.Consumer) {
		if m.Running() {
			were = append(were, m)
		}
		if err := m.Stop(ctx); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, m := range were {
			if err := m.Start(); err != nil {
				return err
			}
		}
		for _, m := range were {
			if err := m.AwaitReady(ctx); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// loseOffsets takes away what Kafka knows of the groups, and then records that a
// consumer has not read.
func loseOffsets(ctx context.Context, l *lane) error {
	client, admin, err := l.kafka()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := healing(ctx)
	defer cancel()
	if err := l.sow(ctx, 40); err != nil {
		return err
	}
	start, err := l.stopConsumers(ctx)
	if err != nil {
		return err
	}
	groups := []string{"millrace-" + workload.LedgerTx, "millrace-" + workload.LedgerBatch, "millrace-" + workload.MovedLedger}
	l.fault("delete the groups %s", strings.Join(groups, ", "))
	err = until(ctx, patience, "the groups are deleted", func() (bool, error) {
		answers, err := admin.DeleteGroups(ctx, groups...)
		return err == nil && answers.Error() == nil, errors.Join(err, answers.Error())
	})
	if err != nil {
		return errors.Join(err, start())
	}
	if err := start(); err != nil {
		return err
	}
	if err := l.reaped(ctx); err != nil {
		return fmt.Errorf("after the groups were deleted: %w", err)
	}
	return l.truncate(ctx, admin)
}

// sow commits facts for the topic that is changed, and waits until they are
// published.
func (l *lane) sow(ctx context.Context, n int) error {
	for i := range n {
		if _, err := l.Producer.Commit(ctx, workload.Moved, fmt.Sprintf("moved-%d", i%16), workload.Entry{Kind: workload.Plain}); err != nil {
			return err
		}
	}
	return until(ctx, patience, "the facts are published", func() (bool, error) {
		n, err := workload.Count(ctx, l.World.DB, `SELECT count(*) FROM outbox_events WHERE topic = $1 AND status = 'PENDING'`, string(workload.Moved))
		return n == 0, err
	})
}

const unreaped = `SELECT count(*) FROM chaos_facts f WHERE topic = $1 AND kind = 'plain'
	AND NOT EXISTS (SELECT FROM chaos_ledger l WHERE l.consumer = $2 AND l.event_id = f.event_id)`

// reaped waits until all facts for that topic are applied.
func (l *lane) reaped(ctx context.Context) error {
	return until(ctx, patience, "the facts are applied", func() (bool, error) {
		n, err := workload.Count(ctx, l.World.DB, unreaped, string(workload.Moved), workload.MovedLedger)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are left", n)
		}
		return n == 0, err
	})
}

// truncate deletes records that the consumer has not read: it has to stop there and
// say so, and must not jump.
func (l *lane) truncate(ctx context.Context, admin *kadm.Client) error {
	start, err := l.stopConsumers(ctx)
	if err != nil {
		return err
	}
	if err := l.sow(ctx, 64); err != nil {
		return err
	}
	var partition int32
	var position int64
	err = l.World.DB.QueryRow(ctx, `SELECT partition, next_offset FROM consumer_offsets
		WHERE consumer_group = $1 AND next_offset > 0 ORDER BY partition LIMIT 1`, "millrace-"+workload.MovedLedger).Scan(&partition, &position)
	if err != nil {
		return err
	}
	cut := position + 2
	l.fault("delete records of %s/%d up to %d, the position is %d", workload.Moved, partition, cut, position)
	gone, err := workload.Records(ctx, l.World.Kafka.Addrs(), []string{string(workload.Moved)}, never)
	if err != nil {
		return err
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: string(workload.Moved), Partition: partition, At: cut})
	if _, err := admin.DeleteRecords(ctx, offsets); err != nil {
		return err
	}
	for _, r := range gone {
		if r.Partition == partition && r.Offset >= position && r.Offset < cut {
			if _, err := l.World.DB.Exec(ctx, `UPDATE chaos_facts SET kind = $2 WHERE event_id = $1`, r.EventID, workload.Cut); err != nil {
				return err
			}
		}
	}
	if err := start(); err != nil {
		return err
	}
	if err := until(ctx, 30*time.Second, "the partition is shown as stalled", func() (bool, error) { return l.stalled(ctx, workload.MovedLedger, partition) }); err != nil {
		return err
	}
	wait(ctx, 5*time.Second)
	where := `SELECT next_offset FROM consumer_offsets WHERE consumer_group = $1 AND partition = $2`
	if now, err := workload.Count(ctx, l.World.DB, where, "millrace-"+workload.MovedLedger, partition); err != nil || now != position {
		l.complain("the position of %s/%d was %d and is %d: it jumped (%v)", workload.Moved, partition, position, now, err)
	}
	l.note("a person sets the position to %d", cut)
	if start, err = l.stopConsumers(ctx); err != nil {
		return err
	}
	if _, err := l.World.DB.Exec(ctx, `UPDATE consumer_offsets SET next_offset = $3 WHERE consumer_group = $1 AND partition = $2`,
		"millrace-"+workload.MovedLedger, partition, cut); err != nil {
		return err
	}
	return errors.Join(start(), l.reaped(ctx))
}

// changeTopic adds partitions once the topic is drained, and then deletes it and
// makes another of that name.
func changeTopic(ctx context.Context, l *lane) error {
	client, admin, err := l.kafka()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := healing(ctx)
	defer cancel()
	if err := errors.Join(l.sow(ctx, 40), l.reaped(ctx)); err != nil {
		return err
	}
	name := string(workload.Moved)
	l.fault("%s grows to 8 partitions", name)
	if _, err := admin.UpdatePartitions(ctx, 8, name); err != nil {
		return err
	}
	if err := errors.Join(l.sow(ctx, 64), l.reaped(ctx)); err != nil {
		return fmt.Errorf("after the topic grew: %w", err)
	}
	l.fault("%s is deleted and made anew", name)
	if _, err := admin.DeleteTopics(ctx, name); err != nil {
		return err
	}
	err = until(ctx, patience, "the topic is made anew", func() (bool, error) {
		answer, err := admin.CreateTopic(ctx, 4, -1, nil, name)
		return err == nil && answer.Err == nil, errors.Join(err, answer.Err)
	})
	if err != nil {
		return err
	}
	if err := l.sow(ctx, 40); err != nil {
		return err
	}
	start, err := l.stopConsumers(ctx)
	if err != nil {
		return err
	}
	if err := start(); err != nil {
		return err
	}
	if err := until(ctx, 30*time.Second, "a partition of the new topic is shown as stalled", func() (bool, error) {
		return l.stalled(ctx, workload.MovedLedger, -1)
	}); err != nil {
		return err
	}
	if n, err := workload.Count(ctx, l.World.DB, unreaped, name, workload.MovedLedger); err != nil || n != 40 {
		l.complain("the topic was replaced and the consumer went on: %d of 40 are left (%v)", n, err)
	}
	l.note("a person gives the positions in the former topic up")
	if start, err = l.stopConsumers(ctx); err != nil {
		return err
	}
	if _, err := l.World.DB.Exec(ctx, `DELETE FROM consumer_offsets WHERE consumer_group = $1`, "millrace-"+workload.MovedLedger); err != nil {
		return err
	}
	return errors.Join(start(), l.reaped(ctx))
}

// stalled asks the processes whether they show a partition of the consumer as
// stalled; partition -1 means any.
func (l *lane) stalled(ctx context.Context, consumer string, partition int32) (bool, error) {
	for _, m := range l.World.Part(world.Consumer) {
		found, err := m.Metric(ctx, "millrace_partition_stalled", func(labels map[string]string) bool {
			return labels["group"] == "millrace-"+consumer && (partition < 0 || labels["partition"] == fmt.Sprint(partition))
		})
		if err == nil && slices.Contains(found, 1) {
			return true, nil
		}
	}
	return false, nil
}
