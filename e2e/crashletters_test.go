package e2e

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/crash"
)

// planted is how many letters a redrive is about: more than one transaction takes.
const planted = 130

// ofLetters reports whether a point is passed with dead letters only; then records
// that nobody can read are part of its workload.
func ofLetters(point crash.Point) bool {
	return strings.HasPrefix(point.Name, "dead_letters.") || strings.Contains(point.Name, "letters_")
}

func ofRedrives(point crash.Point) bool { return strings.HasPrefix(point.Name, "redrive.") }

// plant files letters of a consumer that does not exist, so that what is redriven
// goes to its topic and no further.
func (c *crasher) plant() {
	t := c.in.t
	c.letters += planted
	_, err := c.in.db.Exec(t.Context(), `
		INSERT INTO dead_letters (id, consumer, consumer_group, topic, topic_id, partition, "offset", key, value, header_keys, header_values,
			class, reason, error, error_type, cause_type, attempts, first_failed_at, last_failed_at)
		SELECT gen_random_uuid(), 'nobody', 'nobody', 'execution_tasks', gen_random_uuid(), 0, n, 'k', convert_to(n::text, 'UTF8'), '{}', '{}',
			'handler', 'test', 'test', 't', 't', 1, now(), now() FROM generate_series(1, $1) AS n`, planted)
	require.NoError(t, err)
}

// poison puts a record that cannot be read into both topics.
func (c *crasher) poison() {
	t := c.in.t
	c.poisoned++
	for _, topic := range []string{"execution_events", "execution_tasks"} {
		record := &kgo.Record{Topic: topic, Key: fmt.Append(nil, c.poisoned), Value: []byte("{")}
		require.NoError(t, c.kafka.ProduceSync(t.Context(), record).FirstErr())
	}
}

// redrive asks once for the redrive of all that is planted. That nothing is left to
// redrive is an answer too: an earlier request was heard, and its answer lost.
func (c *crasher) redrive(api *client.Client) error {
	_, err := api.StartRedrive(c.in.t.Context(), client.Redrive{Filter: &client.DeadLetterFilter{Consumer: "nobody"}, Reason: "test"})
	if problem, ok := errors.AsType[*client.Problem](err); ok && problem.Code == "nothing_to_redrive" {
		return nil
	}
	return err
}

// judgeLetters checks that every record that nobody could read has one letter for
// each consumer that should have read it, and that each planted one was redriven
// once.
func (c *crasher) judgeLetters() {
	t, in := c.in.t, c.in
	c.in.await("the letters are filed", func() bool {
		return in.count(`SELECT count(*) FROM dead_letters WHERE consumer <> 'nobody'`) >= 3*c.poisoned
	})
	assert.Equal(t, 3*c.poisoned, in.count(`SELECT count(*) FROM dead_letters
		WHERE consumer IN ('coordinator', 'executions-view', 'worker') AND status = 'OPEN'`), "letters of three consumers for each pair of records")
	c.in.await("the redrives are done", func() bool {
		return in.count(`SELECT count(*) FROM dead_letter_redrives WHERE finished_at IS NULL`) == 0
	})
	c.in.await("the redriven records are published", func() bool {
		return in.count(`SELECT count(*) FROM outbox_events WHERE aggregate_type = 'redrive' AND status = 'PENDING'`) == 0
	})
	assert.Equal(t, c.letters, in.count(`SELECT count(*) FROM dead_letters WHERE consumer = 'nobody' AND status = 'REDRIVEN' AND replay_count = 1`))
	assert.Equal(t, c.letters, in.count(`SELECT count(*) FROM dead_letter_actions WHERE action = 'redrive'`))
	assert.Equal(t, c.letters, in.count(`SELECT count(*) FROM outbox_events WHERE aggregate_type = 'redrive' AND status = 'PUBLISHED'`))
}
