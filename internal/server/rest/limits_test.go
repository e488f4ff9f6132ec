package rest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/limits"
	limitstore "github.com/millrace/millrace/internal/limits/store"
)

// someLimits are the limits team, with two keys, and user, with none. They remember
// what they were asked.
type someLimits struct{ asked []string }

func (l *someLimits) all() []limitstore.Limit {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	declared := func(d limits.Definition) limitstore.Declared {
		return limitstore.Declared{Definition: d, Since: since, By: "c1"}
	}
	return []limitstore.Limit{
		{Declared: declared(limits.Definition{
			Name: "team", Per: limits.PerKey, Key: "labels.team", When: "priority < 5", Rate: limits.Rate{Tokens: 5, Per: time.Minute},
			Burst: 10, Concurrency: 2, Action: limits.Reject,
		}), Keys: 2},
		{Declared: limitstore.Declared{
			Definition: limits.Definition{Name: "user", Per: limits.PerUser, Concurrency: 1, Action: limits.Queue},
			Previous:   &limits.Definition{Name: "user", Per: limits.PerUser, Concurrency: 5, Action: limits.Queue}, Since: since, By: "c1",
		}},
	}
}

func (l *someLimits) List(_ context.Context, after string, max int) ([]limitstore.Limit, error) {
	l.asked = append(l.asked, fmt.Sprintf("list after %q", after))
	var found []limitstore.Limit
	for _, limit := range l.all() {
		if limit.Name > after && len(found) < max {
			found = append(found, limit)
		}
	}
	return found, nil
}

func (l *someLimits) Get(_ context.Context, name string) (limitstore.Limit, error) {
	for _, limit := range l.all() {
		if limit.Name == name {
			return limit, nil
		}
	}
	return limitstore.Limit{}, fmt.Errorf("limit %s: %w", name, limitstore.ErrNotFound)
}

func (l *someLimits) Keys(_ context.Context, d limits.Definition, f limitstore.KeyFilter) ([]limitstore.KeyState, error) {
	l.asked = append(l.asked, fmt.Sprintf("keys of %s %+v", d.Name, f))
	updated := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	var found []limitstore.KeyState
	for _, k := range []limitstore.KeyState{
		{Key: "blue", Tokens: 0, NextTokenAt: updated.Add(time.Second), InUse: 2, UpdatedAt: updated},
		{Key: "red", Tokens: 10, InUse: 1, UpdatedAt: updated},
	} {
		if k.Key > f.After && (f.Key == "" || f.Key == k.Key) && len(found) < f.Limit {
			found = append(found, k)
		}
	}
	return found, nil
}

func (l *someLimits) Reset(_ context.Context, name, key string) (limitstore.KeyState, error) {
	if key != "blue" {
		return limitstore.KeyState{}, fmt.Errorf("limit %s, key %q: %w", name, key, limitstore.ErrNotFound)
	}
	l.asked = append(l.asked, "reset "+name+" "+key)
	return limitstore.KeyState{Key: key, Tokens: 10, InUse: 2, UpdatedAt: time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC)}, nil
}

func TestLimitsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	l := &someLimits{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Limits = l })
	const team = `{"name":"team","per":"key","key":"labels.team","when":"priority < 5","rate":"5/m","burst":10,"concurrency":2,"action":"reject",
		"since":"2026-01-02T03:04:05Z","declared_by":"c1","keys_in_use":2}`
	const user = `{"name":"user","per":"user","concurrency":1,"action":"queue","since":"2026-01-02T03:04:05Z","previous":"per user, concurrency 5","declared_by":"c1","keys_in_use":0}`
	assert.JSONEq(t, `{"limits":[`+team+`,`+user+`]}`, b.do("GET", "/v1/limits", "").Body.String())
	assert.JSONEq(t, team, b.do("GET", "/v1/limits/team", "").Body.String())

	first := decode[LimitList](t, b.do("GET", "/v1/limits?page_size=1", ""))
	require.Len(t, first.Limits, 1)
	require.NotEmpty(t, first.NextPageToken)
	second := decode[LimitList](t, b.do("GET", "/v1/limits?page_size=1&page_token="+first.NextPageToken, ""))
	require.Len(t, second.Limits, 1)
	assert.Equal(t, "user", second.Limits[0].Name)
	assert.Empty(t, second.NextPageToken)
	assert.Equal(t, `list after "team"`, l.asked[len(l.asked)-1])

	requireProblem(t, b.do("GET", "/v1/limits?page_token=x", ""), 400, "invalid_page_token")
	requireProblem(t, b.do("GET", "/v1/limits?page_size=0", ""), 400, "invalid_parameter")
	requireProblem(t, b.do("GET", "/v1/limits/nobody", ""), 404, "limit_not_found")
}

func TestKeysOfALimit(t *testing.T) {
	t.Parallel()
	l := &someLimits{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Limits = l })
	assert.JSONEq(t, `{"keys":[
		{"key":"blue","tokens":0,"next_token_at":"2026-01-02T04:00:01Z","in_use":2,"updated_at":"2026-01-02T04:00:00Z"},
		{"key":"red","tokens":10,"in_use":1,"updated_at":"2026-01-02T04:00:00Z"}]}`, b.do("GET", "/v1/limits/team/keys", "").Body.String())
	assert.NotContains(t, b.do("GET", "/v1/limits/user/keys", "").Body.String(), "tokens", "it has no rate")

	first := decode[LimitKeyList](t, b.do("GET", "/v1/limits/team/keys?page_size=1", ""))
	require.NotEmpty(t, first.NextPageToken)
	second := decode[LimitKeyList](t, b.do("GET", "/v1/limits/team/keys?page_size=1&page_token="+first.NextPageToken, ""))
	require.Len(t, second.Keys, 1)
	assert.Equal(t, "red", second.Keys[0].Key)
	requireProblem(t, b.do("GET", "/v1/limits/user/keys?page_token="+first.NextPageToken, ""), 400, "invalid_page_token")

	one := decode[LimitKeyList](t, b.do("GET", "/v1/limits/team/keys?key=red", ""))
	assert.Len(t, one.Keys, 1)
	assert.Equal(t, "keys of team {Key:red After: Limit:51}", l.asked[len(l.asked)-1])
	requireProblem(t, b.do("GET", "/v1/limits/team/keys?key=%00", ""), 400, "invalid_parameter")
	requireProblem(t, b.do("GET", "/v1/limits/nobody/keys", ""), 404, "limit_not_found")
}

func TestABucketIsResetAndTheLogSaysByWhom(t *testing.T) {
	t.Parallel()
	l := &someLimits{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Limits, d.Guard = l, tokens() })
	admin := []string{"Authorization", "Bearer admin"}
	w := b.do("POST", "/v1/limits/team/reset", `{"key":"blue","reason":"the import is over"}`, admin...)
	assert.JSONEq(t, `{"key":"blue","tokens":10,"in_use":2,"updated_at":"2026-01-02T05:00:00Z"}`, w.Body.String())
	assert.Equal(t, []string{"reset team blue"}, l.asked)
	assert.Contains(t, b.logs.String(), `msg="bucket of a limit was reset" limit=team key=blue by=ada reason="the import is over"`)

	for body, want := range map[string]struct {
		status int
		code   string
	}{
		``:                                 {422, "validation_failed"},
		`{"key":""}`:                       {422, "validation_failed"},
		`{"key":"a\u0000"}`:                {422, "validation_failed"},
		`{"keys":"blue"}`:                  {422, "validation_failed"},
		`{"key":"green"}`:                  {404, "limit_not_found"},
		`{"key":"blue","reason":"\u0000"}`: {422, "validation_failed"},
	} {
		requireProblem(t, b.do("POST", "/v1/limits/team/reset", body, admin...), want.status, want.code)
	}
	requireProblem(t, b.do("POST", "/v1/limits/nobody/reset", `{"key":"blue"}`, admin...), 404, "limit_not_found")
	requireProblem(t, b.do("POST", "/v1/limits/team/reset", `{"key":"blue"}`, "Authorization", "Bearer writer"), 403, "forbidden")
	for _, target := range []string{"", "/team", "/team/keys"} {
		requireProblem(t, b.do("GET", "/v1/limits"+target, "", "Authorization", "Bearer acme"), 403, "forbidden")
	}
	assert.Len(t, l.asked, 1)
}
