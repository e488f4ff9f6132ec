package rest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/query"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/testenv"
)

func TestFiltersOfExecutionsSelect(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), postgres.Config{DSN: secret.New(testenv.Database(t, postgres.MigrateDSN))})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	_, err = pool.Exec(t.Context(), `INSERT INTO execution_views (id, requested_at, state, tenant, user_name, executor, resource_class, name, labels, origin_kind,
		  version, attempt, state_version, queued_version, scheduled_version, started_version, worker_version, result_version, cancel_requested_version)
		SELECT 'e' || n, $1::timestamptz + n * interval '1 s', CASE WHEN n % 3 = 0 THEN 'QUEUED' ELSE 'REQUESTED' END,
		  CASE n WHEN 1 THEN 'umbrella' ELSE 'acme' END, CASE n WHEN 1 THEN 'bob' ELSE 'ann' END,
		  CASE n WHEN 2 THEN 'function' ELSE 'process' END, CASE n WHEN 2 THEN 'gpu' ELSE 'default' END,
		  CASE n WHEN 2 THEN 'sleep_well' WHEN 3 THEN 'nightly%report' ELSE 'x' END,
		  CASE n WHEN 3 THEN '{"team":"blue","env":"prod"}'::jsonb END, CASE n WHEN 4 THEN 'kafka' ELSE 'rest' END, 1, 1, 0, 0, 0, 0, 0, 0, 0
		FROM generate_series(0, 5) AS n
		UNION ALL SELECT 'early', NULL, 'QUEUED', 'acme', 'ann', NULL, NULL, NULL, NULL, NULL, 2, 1, 0, 0, 0, 0, 0, 0, 0`, start)
	require.NoError(t, err)
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	for name, test := range map[string]struct {
		filter executionFilter
		want   []string
	}{
		"none":            {executionFilter{}, []string{"e5", "e4", "e3", "e2", "e1", "e0"}},
		"state":           {executionFilter{States: []execution.State{"QUEUED"}}, []string{"e3", "e0"}},
		"states":          {executionFilter{States: []execution.State{"QUEUED", "REQUESTED"}, User: "bob"}, []string{"e1"}},
		"user":            {executionFilter{User: "bob"}, []string{"e1"}},
		"tenant":          {executionFilter{Tenant: "umbrella"}, []string{"e1"}},
		"executor":        {executionFilter{Executor: "function"}, []string{"e2"}},
		"resource class":  {executionFilter{ResourceClass: "gpu"}, []string{"e2"}},
		"labels":          {executionFilter{Labels: map[string]string{"team": "blue", "env": "prod"}}, []string{"e3"}},
		"label value":     {executionFilter{Labels: map[string]string{"team": "red"}}, []string{}},
		"after":           {executionFilter{RequestedAfter: second(4)}, []string{"e5"}},
		"before":          {executionFilter{RequestedBefore: second(1)}, []string{"e0"}},
		"origin":          {executionFilter{Origin: "kafka"}, []string{"e4"}},
		"name prefix":     {executionFilter{NamePrefix: "sleep"}, []string{"e2"}},
		"prefix wildcard": {executionFilter{NamePrefix: "nightly%"}, []string{"e3"}},
		"no wildcard":     {executionFilter{NamePrefix: "%"}, []string{}},
	} {
		list, err := query.NewStore(pool, query.Limits{}).Executions().List(t.Context(), query.Scope{}, query.Request{Filter: test.filter.tree()})
		require.NoError(t, err)
		found := []string{}
		for _, v := range list.Rows {
			e, err := fromView(v)
			require.NoError(t, err)
			found = append(found, e.ID)
		}
		assert.Equal(t, test.want, found, name)
	}
	ab, ba := executionFilter{States: []execution.State{"FAILED", "QUEUED"}}, executionFilter{States: []execution.State{"QUEUED", "FAILED"}}
	assert.Equal(t, ab.tree(), ba.tree(), "page tokens do not mind the order of the states")
}
