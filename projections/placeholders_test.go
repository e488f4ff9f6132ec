package projections_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/projections"
)

func TestPlaceholdersThatStay(t *testing.T) {
	t.Parallel()
	pool := database(t)
	b := projections.DataIndex(nil).NewBatch()
	for _, r := range flow(t,
		flowEvent{kind: "task.started", at: "02:00", data: `{"instanceId":"new","taskPosition":"a"}`},
		flowEvent{kind: "task.started", at: "01:00", data: `{"instanceId":"old","taskPosition":"a"}`},
		flowEvent{kind: "task.completed", at: "00:30", data: `{"instanceId":"old","taskPosition":"b"}`},
		flowEvent{kind: "task.started", at: "03:00", data: `{"instanceId":"older","taskPosition":"a"}`},
		flowEvent{kind: "task.started", at: "00:00", data: `{"instanceId":"known","taskPosition":"a"}`},
		flowEvent{kind: "workflow.suspended", at: "04:00", data: `{"instanceId":"known"}`},
	) {
		require.NoError(t, b.Add(r))
	}
	require.NoError(t, b.Merge(t.Context(), pool, nil))
	for id, age := range map[string]string{"old": "2 hours", "older": "3 hours", "known": "4 hours"} {
		_, err := pool.Exec(t.Context(), `UPDATE workflow_instances SET created_at = now() - $2::interval WHERE id = $1`, id, age)
		require.NoError(t, err)
	}

	reader := projections.NewReader(pool)
	ids := func(olderThan time.Duration, p projections.Page) (ids []string, next string) {
		page, err := reader.PlaceholderList(t.Context(), olderThan, p)
		require.NoError(t, err)
		for _, found := range page.Placeholders {
			ids = append(ids, found.InstanceID)
		}
		return ids, page.NextToken
	}
	all, next := ids(0, projections.Page{})
	assert.Equal(t, []string{"older", "old", "new"}, all)
	assert.Empty(t, next)
	first, next := ids(time.Hour, projections.Page{Size: 1})
	assert.Equal(t, []string{"older"}, first)
	second, end := ids(time.Hour, projections.Page{Size: 1, Token: next})
	assert.Equal(t, []string{"old"}, second)
	assert.Empty(t, end)
	_, err := reader.PlaceholderList(t.Context(), time.Minute, projections.Page{Token: next})
	require.ErrorIs(t, err, postgres.ErrPageToken)

	page, err := reader.PlaceholderList(t.Context(), time.Hour, projections.Page{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, page.Placeholders[1].Tasks)
	assert.Equal(t, clock(t, "00:30"), page.Placeholders[1].HistoryFrom.UTC())

	reg := prometheus.NewRegistry()
	require.NoError(t, projections.NewPlaceholderGauge(pool, time.Hour, slog.New(slog.DiscardHandler), reg).Count(t.Context()))
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP millrace_data_index_placeholders Workflow instances of which only tasks have been known for longer than data_index.placeholder_after, as of the last count.
# TYPE millrace_data_index_placeholders gauge
millrace_data_index_placeholders 2
`)))

	var plan string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT string_agg(indexdef, '') FROM pg_indexes WHERE indexname = 'workflow_instances_placeholders'`).Scan(&plan))
	assert.Contains(t, plan, "(name IS NULL) AND (status IS NULL)")
}
