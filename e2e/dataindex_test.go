package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/e2e/dataindex"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

const (
	lifecycleTopic   = "flow-lifecycle-out"
	indexDeadLetters = "data-index-events-dlq"
	indexConsumer    = "data-index"
	indexGroup       = "millrace-data-index"
	indexRoles       = "projections"
)

// indexSees waits until the data index says of the instances what the SDK says.
func (in *installation) indexSees(r dataindex.Recording) {
	in.t.Helper()
	var differences []string
	ok := assert.Eventually(in.t, func() bool {
		indexed, err := dataindex.Indexed(in.t.Context(), in.db, r.IDs())
		if err != nil {
			differences = []string{err.Error()}
			return false
		}
		differences = r.Differences(indexed)
		return len(differences) == 0
	}, stuckAfter, 50*time.Millisecond)
	if !ok {
		in.t.Fatalf("%d differences between the data index and the SDK:\n%s", len(differences), strings.Join(head(differences, 20), "\n"))
	}
}

// within is the same installation for a subtest.
func (in *installation) within(t *testing.T) *installation {
	return &installation{t: t, dir: in.dir, token: in.token, brokers: in.brokers, dsn: in.dsn, sets: in.sets, db: in.db}
}

func head[T any](all []T, n int) []T { return all[:min(n, len(all))] }

// Workflows that run in the CNCF's Java SDK, whose events reach Kafka by Java's own
// client, are in the data index as the SDK itself tells of them, in the tables and over
// GraphQL; and what became a dead letter is processed once Kafka's own tools have copied it back.
func TestDataIndexOfForeignSoftware(t *testing.T) {
	in := installReal(t)
	front := in.serve("index", "api,relay,maintenance,"+indexRoles).ready()

	t.Run("Java SDK", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // the first run fetches the SDK
		defer cancel()
		publisher, err := dataindex.Compile(ctx, t.TempDir(), os.Stderr)
		require.NoError(t, err)
		for _, encoding := range []string{dataindex.Bare, dataindex.Binary} {
			t.Run(encoding, func(t *testing.T) {
				r, err := publisher.Run(ctx, dataindex.Publish{
					Encoding: encoding, Brokers: strings.Join(in.brokers, ","), Topic: lifecycleTopic, Rounds: 3,
				})
				require.NoError(t, err)
				require.Len(t, r.Instances, 36)
				in.within(t).indexSees(r)
				over := dataindex.GraphQL{URL: front.address("api"), Token: in.token}
				indexed, err := over.Instances(ctx, map[string]any{"id": map[string]any{"in": r.IDs()}})
				require.NoError(t, err)
				assert.Empty(t, r.Differences(indexed), "over GraphQL")
				assert.Len(t, indexed, len(r.Instances))
			})
		}
		assert.Zero(t, in.count(`SELECT count(*) FROM dead_letters`))
	})
	t.Run("stock tools copy a dead letter back", func(t *testing.T) { in.within(t).redriveByHand() })
	in.stopAll()
}

// redriveByHand makes dead letters of the events of one task of two instances, removes
// the cause, and copies the records back as requirement 000 describes it: with their
// headers, without which the binary mode says nothing, and without, which is enough for
// the structured mode.
func (in *installation) redriveByHand() {
	t := in.t
	binary := dataindex.Recorded(dataindex.Binary).Copy("with")
	bare := dataindex.Recorded(dataindex.Bare).Copy("without")
	// The workflow "order-processing" is the first; its second task is refused.
	for _, sql := range []string{
		`CREATE FUNCTION refuse_task() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'this task, with a comma, is refused' USING ERRCODE = '23514'; END $$`,
		`CREATE TRIGGER refuse_task BEFORE INSERT OR UPDATE ON task_instances FOR EACH ROW WHEN (NEW.task_position = 'do/1/confirm')
			EXECUTE FUNCTION refuse_task()`,
	} {
		_, err := in.db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, r := range []dataindex.Recording{binary, bare} {
		require.Equal(t, "order-processing", r.Instances[0].Name)
		require.NoError(t, dataindex.Send(t.Context(), in.brokers, lifecycleTopic, true, r.Records))
	}
	const letters = 4 // started and completed, of two tasks
	await(t, stuckAfter, "the dead letters are in their topic", func() bool { return in.endOf(indexDeadLetters) == letters })
	assert.Equal(t, letters, in.count(`SELECT count(*) FROM dead_letters WHERE consumer = $1 AND status = 'OPEN'`, indexConsumer))
	indexed, err := dataindex.Indexed(t.Context(), in.db, binary.IDs()[:1])
	require.NoError(t, err)
	assert.Len(t, indexed[binary.Instances[0].ID].Tasks, 1, "the other task is there")
	_, err = in.db.Exec(t.Context(), `DROP TRIGGER refuse_task ON task_instances`)
	require.NoError(t, err)

	in.copyBack(letters, true, binary.Instances[0].ID)
	in.indexSees(binary)
	in.copyBack(letters, false, bare.Instances[0].ID)
	in.indexSees(bare)
	assert.Equal(t, letters, in.endOf(indexDeadLetters), "nothing became a dead letter again")
}

// copyBack copies the dead letters of an instance back to their topic with Kafka's own
// console tools.
func (in *installation) copyBack(letters int, headers bool, instance string) {
	t := in.t
	t.Helper()
	// Headers come before the value. Their own text has commas and colons in it.
	consume := []string{
		"--topic", indexDeadLetters, "--from-beginning", "--max-messages", jsonOf(t, letters), "--timeout-ms", "60000",
		"--formatter-property", "print.headers=" + jsonOf(t, headers), "--formatter-property", "headers.separator=~~",
	}
	printed := in.kafkaTool(realkafka.ConsoleConsumer, "", consume...)
	var chosen strings.Builder
	for line := range strings.Lines(printed) {
		if strings.Contains(line, instance) {
			chosen.WriteString(line)
		}
	}
	require.Equal(t, 2, strings.Count(chosen.String(), "\n"), printed)
	in.kafkaTool(realkafka.ConsoleProducer, chosen.String(), "--topic", lifecycleTopic,
		"--reader-property", "parse.headers="+jsonOf(t, headers), "--reader-property", "headers.separator=~~")
}

// kafkaTool runs one of Kafka's own tools.
func (in *installation) kafkaTool(class, stdin string, args ...string) (stdout string) {
	t := in.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stuckAfter)
	defer cancel()
	cmd, err := realkafka.Tool(ctx, os.Stderr, class, append([]string{"--bootstrap-server", in.brokers[0]}, args...)...)
	require.NoError(t, err)
	cmd.Stdin = strings.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", class, errs.String())
	return string(out)
}

// endOf returns how many records were written to a topic, or -1 while it cannot be told.
func (in *installation) endOf(topic string) int {
	client, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(in.t, err)
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(in.t.Context(), topic)
	if err != nil || listed.Error() != nil {
		return -1
	}
	n := 0
	listed.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
	return n
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}
