package rest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/topics"
)

// someHolds are holds in memory.
type someHolds struct {
	list       []holds.Hold
	by, reason string // of the last change
}

func (s *someHolds) Place(_ context.Context, t holds.Target, by, reason string) (holds.Hold, bool, error) {
	s.by, s.reason = by, reason
	for _, h := range s.list {
		if h.Target == t {
			return h, false, nil
		}
	}
	h := holds.Hold{Target: t, By: by, Reason: reason, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.list = append(s.list, h)
	return h, true, nil
}

func (s *someHolds) Lift(_ context.Context, t holds.Target, by, reason string) (holds.Hold, bool, error) {
	s.by, s.reason = by, reason
	for i, h := range s.list {
		if h.Target == t {
			s.list = append(s.list[:i], s.list[i+1:]...)
			return h, true, nil
		}
	}
	return holds.Hold{}, false, nil
}

func (s *someHolds) List(context.Context) ([]holds.Hold, error) { return s.list, nil }

func TestHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	kept := b.api.deps.Holds.(*someHolds)
	as := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	for _, c := range []struct {
		body string
		want holds.Target
		was  bool
	}{
		{`{"scope":"all","reason":"maintenance"}`, holds.Target{Scope: holds.All}, false},
		{`{"scope":"class","resource_class":"gpu"}`, holds.Target{Scope: holds.Class, ResourceClass: "gpu"}, false},
		{`{"scope":"user","user":"ada"}`, holds.Target{Scope: holds.User, Tenant: "default", User: "ada"}, false},
		{`{"scope":"user","user":"ada","tenant":"acme"}`, holds.Target{Scope: holds.User, Tenant: "acme", User: "ada"}, false},
		{`{"scope":"class","resource_class":"gpu"}`, holds.Target{Scope: holds.Class, ResourceClass: "gpu"}, true},
	} {
		w := b.do("POST", "/v1/queue/holds", c.body, as("admin")...)
		if c.was {
			require.Equal(t, 200, w.Code, w.Body.String())
		} else {
			require.Equal(t, 201, w.Code, w.Body.String())
		}
		h := decode[Hold](t, w)
		assert.Equal(t, c.want, holds.Target{Scope: h.Scope, ResourceClass: h.ResourceClass, Tenant: h.Tenant, User: h.User})
		assert.Equal(t, "ada", h.By, "the owner of the token")
	}
	assert.Equal(t, "maintenance", kept.list[0].Reason)

	assert.Len(t, decode[HoldList](t, b.do("GET", "/v1/queue/holds", "", as("viewer")...)).Holds, 4)
	assert.Len(t, decode[HoldList](t, b.do("GET", "/v1/queue/holds", "", as("acme")...)).Holds, 3,
		"a tenant sees what concerns it")

	lifted := decode[Resumed](t, b.do("DELETE", "/v1/queue/holds?scope=user&user=ada&reason=done", "", as("admin")...))
	assert.True(t, lifted.Resumed)
	assert.Equal(t, "default", lifted.Hold.Tenant)
	assert.Equal(t, "done", kept.reason)
	lifted = decode[Resumed](t, b.do("DELETE", "/v1/queue/holds?scope=user&user=ada", "", as("admin")...))
	assert.Equal(t, Resumed{}, lifted)
}

func TestHoldsRefuseWhatIsNoTarget(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, body := range []string{
		`{}`, `{"scope":"queue"}`, `{"scope":"class"}`, `{"scope":"user"}`, `{"scope":"all","resource_class":"gpu"}`,
		`{"scope":"class","resource_class":"gpu","user":"ada"}`, `{"scope":"class","resource_class":"a\u0000b"}`,
		`{"scope":"user","user":"` + strings.Repeat("a", 200) + `"}`, `{"scope":"all","reason":"` + strings.Repeat("a", 1001) + `"}`,
		`{"scope":"all","until":"tomorrow"}`,
	} {
		requireProblem(t, b.do("POST", "/v1/queue/holds", body), 422, "validation_failed")
	}
	for _, query := range []string{"", "?scope=class", "?scope=all&user=ada", "?scope=class&resource_class=gpu&x=1"} {
		requireProblem(t, b.do("DELETE", "/v1/queue/holds"+query, ""), 400, "invalid_parameter")
	}
	assert.Empty(t, b.api.deps.Holds.(*someHolds).list)
}

func TestATokenOfATenantHoldsItsOwnUsers(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	as := []string{"Authorization", "Bearer acmeadmin"}
	w := b.do("POST", "/v1/queue/holds", `{"scope":"user","user":"ada"}`, as...)
	require.Equal(t, 201, w.Code, w.Body.String())
	assert.Equal(t, "acme", decode[Hold](t, w).Tenant)
	for _, body := range []string{`{"scope":"all"}`, `{"scope":"class","resource_class":"gpu"}`, `{"scope":"user","tenant":"default","user":"ada"}`} {
		requireProblem(t, b.do("POST", "/v1/queue/holds", body, as...), 403, "forbidden")
	}
}

func TestReprioritize(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	path := b.do("POST", "/v1/executions", echo).Header().Get("Location")
	w := b.do("PATCH", path, `{"priority":5,"reason":"urgent"}`)
	require.Equal(t, 200, w.Code, w.Body.String())
	e := decode[Execution](t, w)
	assert.Equal(t, 5, e.Priority)
	assert.EqualValues(t, 2, e.Version)
	again := decode[Execution](t, b.do("PATCH", path, `{"priority":5}`))
	assert.EqualValues(t, 2, again.Version, "saying it again changes nothing")

	for _, body := range []string{`{}`, `{"priority":0}`, `{"priority":6}`, `{"priority":null}`, `{"priority":3,"user":"x"}`, `{"priority":"high"}`} {
		requireProblem(t, b.do("PATCH", path, body), 422, "validation_failed")
	}
	requireProblem(t, b.do("PATCH", "/v1/executions/nope", `{"priority":5}`), 404, "execution_not_found")

	inner := b.store.executions[e.ID]
	require.NoError(t, inner.Queue(time.Now(), execution.DefaultPolicy()))
	_, err := inner.Schedule(time.Now(), "c", topics.ScheduledInTurn, execution.DefaultPolicy())
	require.NoError(t, err)
	p := requireProblem(t, b.do("PATCH", path, `{"priority":1}`), 409, "execution_admitted")
	assert.Equal(t, "it is SCHEDULED already, where its priority decides nothing any more", p.Detail)
	require.NoError(t, inner.RequestCancel(time.Now(), "", ""))
	requireProblem(t, b.do("PATCH", path, `{"priority":1}`), 409, "execution_ended")
}

func TestATenantReprioritizesItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	path := b.do("POST", "/v1/executions", echo, "Authorization", "Bearer admin").Header().Get("Location")
	requireProblem(t, b.do("PATCH", path, `{"priority":5}`, "Authorization", "Bearer acme"), 404, "execution_not_found")
	requireProblem(t, b.do("PATCH", path, `{"priority":5}`, "Authorization", "Bearer viewer"), 403, "forbidden")
}
