package inbox_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Two routers on a broker share a consumer, and come and go; whichever is there
// drains the lanes, while records keep coming.
func TestLanesEndToEnd(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	c := clinicOn(p.testBundle)
	const keys, each = 6, 40
	want := make(map[string][]string)
	var records []topics.Record
	for n := range each {
		for k := range keys {
			id := fmt.Sprintf("%c%03d", 'a'+k, n)
			if k < 4 && n%11 == 5 {
				c.sick[id] = true
			}
			want[id[:1]] = append(want[id[:1]], id)
			records = append(records, keyed(t, id)...)
		}
	}
	consumer := c.batch()
	consumer.BatchSize = 16
	consumer.Delivery.Breaker.Faults = -1
	stop := p.start(t, consumer)
	p.publish(t, records[:keys*each/2]...)
	require.Eventually(t, func() bool { return len(c.lanes(t)) == 4 }, eventuallyLoaded, tick)
	other := p.start(t, consumer)
	p.publish(t, records[keys*each/2:]...)
	stop()
	defer other()

	redriven := 0
	defer func() {
		if t.Failed() {
			t.Log(len(c.effects(t)), "effects, waiting", c.waiting(t), "in", p.strings(t, `SELECT parked_lanes::text FROM parked_lanes`),
				"behind", p.strings(t, `SELECT event_id || ' ' || status FROM dead_letters ORDER BY id`))
		}
	}()
	require.Eventually(t, func() bool {
		list, err := c.letters.List(t.Context(), deadletter.Filter{Statuses: []deadletter.Status{deadletter.Open}}, deadletter.Page{})
		require.NoError(t, err)
		for _, l := range list.Letters {
			c.cure(fmt.Sprintf("%s%s", l.Record.Key, l.EventID[len("id-x"):]))
			result, err := c.letters.Redrive(t.Context(), deadletter.Redrive{IDs: []string{l.ID.String()}, Terms: deadletter.Terms{Actor: "ada"}})
			require.NoError(t, err)
			redriven += result.Redriven
		}
		return len(c.effects(t)) == keys*each && len(c.lanes(t)) == 0
	}, eventuallyLoaded, tick)
	assert.Equal(t, 16, redriven, "each letter once")
	got := make(map[string][]string)
	for _, id := range c.effects(t) {
		got[id[:1]] = append(got[id[:1]], id)
	}
	assert.Equal(t, want, got)
	assert.Empty(t, p.strings(t, `SELECT topic FROM outbox_events WHERE aggregate_type = 'redrive'`))
}

// A partition in which too much waits stands still until there is room, and a lane
// whose handler lacks the database is tried again.
func TestAStallEndsWhenItsLanesAreDrained(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	c := clinicOn(p.testBundle, "a1")
	consumer := c.one()
	consumer.Delivery.MaxParked = 2
	defer p.start(t, consumer)()
	p.publish(t, keyed(t, "a1", "a2", "a3", "a4", "a5")...)
	require.Eventually(t, func() bool { return len(c.waiting(t)) == 2 }, eventuallyLoaded, tick)
	c.cure("a1")
	c.breakDown(pipeline.Infrastructure(errors.New("no database")))
	c.redrive(t, "a")
	require.Eventually(t, func() bool {
		return len(p.strings(t, `SELECT error FROM parked_lanes WHERE tries > 0 AND leased_until IS NULL`)) == 1
	}, eventuallyLoaded, tick)
	c.breakDown(nil)
	require.Eventually(t, func() bool { return len(c.effects(t)) == 5 }, eventuallyLoaded, tick)
	assert.Equal(t, []string{"a1", "a2", "a3", "a4", "a5"}, c.effects(t))
}
