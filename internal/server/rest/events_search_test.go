package rest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/eventlog"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/topics"
)

func TestSearchOfTheEventLog(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	var records []topics.Record
	for i := range 5 {
		id := fmt.Sprintf("e%d", i%2)
		env, err := topics.NewEnvelope(topics.ExecutionQueued{ExecutionID: id, Attempt: 1, ResourceClass: "default", Priority: 3},
			topics.WithTime(noon.Add(time.Duration(i)*time.Second)), topics.WithID(fmt.Sprint("event-", i)))
		require.NoError(t, err)
		r := env.Record("execution_events", []byte(id))
		r.TopicID, r.Partition, r.Offset, r.Timestamp = [16]byte{1}, 2, int64(i), noon
		records = append(records, r)
	}
	require.NoError(t, eventlog.Append(t.Context(), pool, records))
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard, d.History = tokens(), eventlog.NewReader(pool) })
	as := func(token string) []string {
		return []string{"Authorization", "Bearer " + token, "Accept", "application/json"}
	}
	ids := func(page RecordedEventList) (ids []string) {
		for _, e := range page.Events {
			var event struct{ ID string }
			require.NoError(t, json.Unmarshal(e.Event, &event))
			ids = append(ids, event.ID)
		}
		return ids
	}
	page := decode[RecordedEventList](t, b.do("GET", "/v1/events?page_size=3", "", as("viewer")...))
	assert.Equal(t, []string{"event-4", "event-3", "event-2"}, ids(page))
	assert.Equal(t, "execution_events", page.Events[0].Topic)
	assert.EqualValues(t, 2, page.Events[0].Partition)
	assert.EqualValues(t, 4, page.Events[0].Offset)
	next := url.QueryEscape(page.NextPageToken)
	assert.Equal(t, []string{"event-1", "event-0"}, ids(decode[RecordedEventList](t, b.do("GET", "/v1/events?page_size=3&page_token="+next, "", as("viewer")...))))
	requireProblem(t, b.do("GET", "/v1/events?subject=e1&page_token="+next, "", as("viewer")...), 400, "invalid_page_token")
	requireProblem(t, b.do("GET", "/v1/events?page_token=x", "", as("viewer")...), 400, "invalid_page_token")

	for query, want := range map[string][]string{
		"subject=e1":             {"event-3", "event-1"},
		"subject=e1,e0&key=e1":   {"event-3", "event-1"},
		"type=millrace.*&key=e0": {"event-4", "event-2", "event-0"},
		"type=other.v1":          nil,
		"topic=orders":           nil,
		"from=2026-03-04T12:00:01Z&to=2026-03-04T12:00:03Z": {"event-2", "event-1"},
	} {
		assert.Equal(t, want, ids(decode[RecordedEventList](t, b.do("GET", "/v1/events?"+query, "", as("viewer")...))), query)
	}
	for _, query := range []string{"from=yesterday", "page_size=0", "subject=", "nonsense=1", "subject=%00"} {
		assert.Equal(t, 400, b.do("GET", "/v1/events?"+query, "", as("viewer")...).Code, query)
	}
	assert.Equal(t, 403, b.do("GET", "/v1/events", "", as("acme")...).Code)
}
