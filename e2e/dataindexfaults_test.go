package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/e2e/dataindex"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/testenv/realkafka"
	"github.com/millrace/millrace/projections"
)

const lifecyclePartitions = 6

// indexTables are those that the data index builds.
var indexTables = []string{"workflow_instances", "task_instances"}

// Cases G1, A4, C1 and D3 for the data index: events that come one to five times, in
// another order, late, and by way of different consumers, while a consumer is killed
// and PostgreSQL is killed in the middle of a batch; then the topic is lost with all
// that is in it. The rows end up equal, to the mark, to those that one consumer makes
// of each event once and in order.
func TestDataIndexUnderFaults(t *testing.T) {
	t.Parallel()
	quick := []string{"kafka.session_timeout=6s", "kafka.heartbeat_interval=1s"}
	t.Run("embedded broker", func(t *testing.T) {
		t.Parallel()
		pg := testenv.OwnPostgres(t)
		in := install(t, testenv.Broker(t), pg.TCPDSN(), quick...)
		in.postgres = pg
		in.dataIndexUnderFaults()
	})
	t.Run("Apache Kafka", func(t *testing.T) {
		realkafka.Require(t)
		t.Parallel()
		installReal(t, quick...).dataIndexUnderFaults()
	})
}

func (in *installation) dataIndexUnderFaults() {
	t := in.t
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	history := dataindex.Copies("faults", 6)
	road := dataindex.Disturb(random, history.Records)
	send := func(records []dataindex.Record) {
		require.NoError(t, dataindex.Send(t.Context(), in.brokers, lifecycleTopic, false, records))
	}
	began := time.Now()
	phase := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }
	victim := in.serve("index-1", indexRoles).ready()
	in.serve("index-2", indexRoles).ready()
	members := in.indexShared(nil)

	third := len(road) / 3
	phase("two consumers, the first is killed in its batches")
	in.inTheMiddleOfABatch(func() { send(road[:third]) }, func() { victim.sigkill() })
	in.serve("index-3", indexRoles).ready()
	in.indexShared(members)
	phase("two consumers again, PostgreSQL is killed in their batches")
	in.inTheMiddleOfABatch(func() { send(road[third : 2*third]) }, func() { in.postgres.Kill() })
	in.postgres.Start()
	phase("PostgreSQL is back")
	send(road[2*third:])
	in.indexSees(history)
	in.indexRead()
	in.asUndisturbed(history)
	phase("all is read, and the rows are those of an undisturbed run")

	in.topicLost(history)
	phase("the topic was lost, and the index goes on with the new one")
	assert.Zero(t, in.count(`SELECT count(*) FROM dead_letters`))
	in.stopAll()
}

// indexShared waits until two processes have all partitions between them, others than
// those before: Kafka takes a while to miss one that was killed, and one that joins later
// would wait for the others' batches. It returns the members of the group.
func (in *installation) indexShared(before []string) (members []string) {
	t := in.t
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	await(t, stuckAfter, "two processes share the partitions", func() bool {
		groups, err := admin.DescribeGroups(t.Context(), indexGroup)
		group := groups[indexGroup]
		members = nil
		for _, m := range group.Members {
			members = append(members, m.MemberID)
		}
		slices.Sort(members)
		return err == nil && group.State == "Stable" && len(members) == 2 && !slices.Equal(members, before) &&
			len(group.AssignedPartitions()[lifecycleTopic]) == lifecyclePartitions
	})
	return members
}

// inTheMiddleOfABatch has every partition's consumer stand in its transaction while
// something is done: one at least has written the instances and not yet the tasks, the
// others too or they wait for an instance that it has written.
func (in *installation) inTheMiddleOfABatch(send, do func()) {
	t := in.t
	t.Helper()
	conn, err := pgx.Connect(t.Context(), in.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }() // which releases the lock
	_, err = conn.Exec(t.Context(), `BEGIN; LOCK TABLE task_instances IN EXCLUSIVE MODE`)
	require.NoError(t, err)
	send()
	await(t, stuckAfter, "all partitions have a batch under way", func() bool {
		return in.count(`SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN
			(SELECT pid FROM pg_locks WHERE granted AND relation = 'workflow_instances'::regclass)`) == lifecyclePartitions
	})
	do()
}

// indexRead waits until all that lies in the topic is applied.
func (in *installation) indexRead() {
	in.t.Helper()
	await(in.t, stuckAfter, "the data index has read its topic to the end", func() bool {
		return in.count(`SELECT coalesce(sum(next_offset), 0) FROM consumer_offsets WHERE consumer_group = $1 AND topic_id = $2`,
			indexGroup, in.topicID(lifecycleTopic)) == in.endOf(lifecycleTopic)
	})
}

func (in *installation) topicID(topic string) uuid.UUID {
	in.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(in.t, err)
	defer client.Close()
	listed, err := kadm.NewClient(client).ListTopics(in.t.Context(), topic)
	require.NoError(in.t, err)
	return uuid.UUID(listed[topic].ID)
}

// asUndisturbed compares the tables with those that the history makes, each event once
// and in order, in a database of its own.
func (in *installation) asUndisturbed(history dataindex.Recording) {
	t := in.t
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	defer pool.Close()
	index := projections.DataIndex(nil)
	batch := index.NewBatch()
	for _, r := range history.Records {
		require.NoError(t, batch.Add(r.Of(lifecycleTopic)))
	}
	require.NoError(t, batch.Merge(t.Context(), pool, nil))
	for _, table := range indexTables {
		want, have := tableRows(t, pool, table), tableRows(t, in.db, table)
		if !assert.Len(t, have, len(want), table) {
			continue
		}
		for i := range want {
			if !assert.Equal(t, want[i], have[i], table) {
				break
			}
		}
	}
}

// tableRows returns the rows of a read model without their times of arrival.
func tableRows(t *testing.T, pool *pgxpool.Pool, table string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), fmt.Sprintf(`SELECT (to_jsonb(r) - 'created_at' - 'updated_at')::text FROM %s AS r ORDER BY 1`,
		pgx.Identifier{table}.Sanitize()))
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// topicLost deletes the topic and makes it anew, as it is after Kafka has lost its data:
// the read models stay, the consumer says what happened instead of passing over the new
// events, and goes on where it is told to.
func (in *installation) topicLost(history dataindex.Recording) {
	t := in.t
	t.Helper()
	before := in.indexRows()
	for _, p := range in.alive() {
		p.sigterm()
		require.Zero(t, p.wait(stopWithin))
	}
	lost := in.topicID(lifecycleTopic)
	in.deleteTopic(lifecycleTopic)
	front := in.serve("front", "api").ready() // it makes the topic
	require.False(t, slices.Contains([]uuid.UUID{lost, {}}, in.topicID(lifecycleTopic)))
	more := dataindex.Copies("after", 2)
	require.NoError(t, dataindex.Send(t.Context(), in.brokers, lifecycleTopic, true, more.Records))

	in.serve("index-4", indexRoles).ready()
	operate := func(line string, more ...string) (out, errs string, code int) {
		return cli(t, in.launch("operator"), append(append(strings.Fields(line), more...), "--url", front.address("api"), "--token", in.token)...)
	}
	await(t, stuckAfter, "the consumer says that its topic is another one", func() bool {
		out, _, _ := operate("consumers get " + indexConsumer + " -o json")
		return strings.Contains(out, "topic_replaced")
	})
	assert.Equal(t, before, in.indexRows(), "the read models stay")
	_, errs, code := operate("consumers seek "+indexConsumer+" --all-partitions --to beginning --reason", "kafka lost its data")
	require.Zero(t, code, errs)
	in.indexSees(more)
	in.indexSees(history)
	in.indexRead()
}

func (in *installation) indexRows() map[string][]string {
	all := map[string][]string{}
	for _, table := range indexTables {
		all[table] = tableRows(in.t, in.db, table)
	}
	return all
}

// deleteTopic deletes a topic, and returns when Kafka has forgotten it.
func (in *installation) deleteTopic(topic string) {
	t := in.t
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	deleted, err := admin.DeleteTopics(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	await(t, stuckAfter, "the topic is gone", func() bool {
		listed, err := admin.ListTopics(t.Context())
		return err == nil && !listed.Has(topic)
	})
}
