package projections_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/topics"
)

// submitted applies the first event of n executions, one per second, and returns
// their ids, newest first.
func submitted(t testing.TB, pool *pgxpool.Pool, from, n int, change func(i int, r *topics.Request)) []string {
	t.Helper()
	var events []topics.Envelope
	ids := make([]string, n)
	for i := range n {
		id := fmt.Sprintf("e%04d", from+i)
		req := request(func(r *topics.Request) {
			if change != nil {
				change(from+i, r)
			}
		})
		e := execution.New(id, req, start.Add(time.Duration(from+i)*time.Second))
		if (from+i)%3 == 0 {
			require.NoError(t, e.Queue(start.Add(time.Duration(from+i)*time.Second), execution.DefaultPolicy()))
		}
		events = append(events, envelopes(t, e)...)
		ids[n-1-i] = id
	}
	apply(t, pool, events...)
	return ids
}

func idsOf(views []projections.ExecutionView) []string {
	out := []string{}
	for _, v := range views {
		out = append(out, v.ID)
	}
	return out
}

func TestFiltersSelect(t *testing.T) {
	t.Parallel()
	pool := database(t)
	submitted(t, pool, 0, 6, func(i int, r *topics.Request) {
		switch i {
		case 1:
			r.User, r.Tenant = "bob", "umbrella"
		case 2:
			r.Executor, r.Spec, r.ResourceClass = "function", []byte(`{"name":"sleep_well"}`), "gpu"
		case 3:
			r.Labels = map[string]string{"team": "blue", "env": "prod", "name": "nightly%report"}
		case 4:
			r.Labels, r.Origin.Kind = nil, "kafka"
		}
	})
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	for name, test := range map[string]struct {
		filter projections.Filter
		want   []string
	}{
		"none":            {projections.Filter{}, []string{"e0005", "e0004", "e0003", "e0002", "e0001", "e0000"}},
		"state":           {projections.Filter{States: []execution.State{"QUEUED"}}, []string{"e0003", "e0000"}},
		"states":          {projections.Filter{States: []execution.State{"QUEUED", "REQUESTED"}, User: "bob"}, []string{"e0001"}},
		"user":            {projections.Filter{User: "bob"}, []string{"e0001"}},
		"tenant":          {projections.Filter{Tenant: "umbrella"}, []string{"e0001"}},
		"executor":        {projections.Filter{Executor: "function"}, []string{"e0002"}},
		"resource class":  {projections.Filter{ResourceClass: "gpu"}, []string{"e0002"}},
		"labels":          {projections.Filter{Labels: map[string]string{"team": "blue", "env": "prod"}}, []string{"e0003"}},
		"label value":     {projections.Filter{Labels: map[string]string{"team": "red"}}, []string{}},
		"after":           {projections.Filter{RequestedAfter: second(4)}, []string{"e0005"}},
		"before":          {projections.Filter{RequestedBefore: second(1)}, []string{"e0000"}},
		"origin":          {projections.Filter{Origin: "kafka"}, []string{"e0004"}},
		"name prefix":     {projections.Filter{NamePrefix: "sleep"}, []string{"e0002"}},
		"prefix wildcard": {projections.Filter{NamePrefix: "nightly%"}, []string{"e0003"}},
		"no wildcard":     {projections.Filter{NamePrefix: "%"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, idsOf(list(t, pool, test.filter)))
		})
	}
}

func TestPagingIsStableUnderWrites(t *testing.T) {
	t.Parallel()
	pool := database(t)
	want := submitted(t, pool, 0, 50, nil)
	var got []string
	page := projections.Page{Size: 7}
	for round := 0; ; round++ {
		answer, err := projections.ExecutionList(t.Context(), pool, projections.Filter{}, page)
		require.NoError(t, err)
		got = append(got, idsOf(answer.Executions)...)
		// Between the pages new executions arrive and old ones move on.
		submitted(t, pool, 1000+10*round, 10, nil)
		apply(t, pool, history(t, want[(round*13)%50])[1:]...)
		if answer.NextToken == "" {
			break
		}
		page.Token = answer.NextToken
	}
	assert.Equal(t, want, got, "none twice, none left out, none of those that came later")
}

func TestExecutionsOfOneInstantArePagedToo(t *testing.T) {
	t.Parallel()
	pool := database(t)
	var events []topics.Envelope
	for i := range 9 {
		events = append(events, envelopes(t, execution.New(fmt.Sprintf("e%d", i), request(nil), start))...)
	}
	apply(t, pool, events...)
	var got []string
	for page := (projections.Page{Size: 2}); ; {
		answer, err := projections.ExecutionList(t.Context(), pool, projections.Filter{}, page)
		require.NoError(t, err)
		got = append(got, idsOf(answer.Executions)...)
		if page.Token = answer.NextToken; page.Token == "" {
			break
		}
	}
	assert.Equal(t, []string{"e8", "e7", "e6", "e5", "e4", "e3", "e2", "e1", "e0"}, got)
}

func TestATokenBelongsToItsFilter(t *testing.T) {
	t.Parallel()
	pool := database(t)
	submitted(t, pool, 0, 3, nil)
	states := func(s ...execution.State) projections.Filter { return projections.Filter{States: s} }
	first, err := projections.ExecutionList(t.Context(), pool, states("FAILED", "REQUESTED"), projections.Page{Size: 1})
	require.NoError(t, err)
	require.NotEmpty(t, first.NextToken)
	next := projections.Page{Size: 1, Token: first.NextToken}
	_, err = projections.ExecutionList(t.Context(), pool, states("REQUESTED", "FAILED"), next)
	require.NoError(t, err, "the order of the states says nothing")
	_, err = projections.ExecutionList(t.Context(), pool, states("REQUESTED"), next)
	require.ErrorIs(t, err, postgres.ErrPageToken)
}
