package rest

import (
	"context"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/purge"
)

// somePurges are purges in memory, the oldest first.
type somePurges struct {
	list []purge.Purge
	last purge.Request
}

func (s *somePurges) Create(_ context.Context, r purge.Request) (purge.Purge, bool, error) {
	s.last = r
	for _, p := range s.list {
		if !p.State.Over() && p.Tenant == r.Tenant && string(p.UserHash) == string(purge.HashOf(r.User)) {
			return p, false, nil
		}
	}
	id, _ := uuid.NewV7() // never fails
	p := purge.Purge{
		ID: id, State: purge.Running, Tenant: r.Tenant, UserHash: purge.HashOf(r.User), Actor: r.Actor, Reason: r.Reason,
		Step: "executions", Erased: purge.Counts{}, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	s.list = append(s.list, p)
	return p, true, nil
}

func (s *somePurges) Preview(_ context.Context, r purge.Request) (erased, waiting purge.Counts, err error) {
	s.last = r
	return purge.Counts{purge.Executions: 3}, purge.Counts{purge.NotEnded: 1}, nil
}

func (s *somePurges) Get(_ context.Context, id string) (purge.Purge, error) {
	for _, p := range s.list {
		if p.ID.String() == id {
			return p, nil
		}
	}
	return purge.Purge{}, fmt.Errorf("purge %s: %w", id, purge.ErrNotFound)
}

func (s *somePurges) List(_ context.Context, before string, limit int) ([]purge.Purge, error) {
	if before == "x" {
		return nil, postgres.ErrPageToken
	}
	var list []purge.Purge
	for i := len(s.list) - 1; i >= 0 && len(list) < limit; i-- {
		if before == "" || s.list[i].ID.String() < before {
			list = append(list, s.list[i])
		}
	}
	return list, nil
}

func (s *somePurges) End(ctx context.Context, id string) (purge.Purge, error) {
	for i := range s.list {
		if p := &s.list[i]; p.ID.String() == id {
			if p.State == purge.Done {
				return *p, purge.ErrOver
			}
			p.State = purge.Cancelled
		}
	}
	return s.Get(ctx, id)
}

func TestPurges(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	kept := b.api.deps.Purges.(*somePurges)
	as := func(token string) []string { return []string{"Authorization", "Bearer " + token} }

	w := b.do("POST", "/v1/purges", `{"user":"ada","dry_run":true}`, as("admin")...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, Purge{DryRun: true, Erased: map[string]int64{"executions": 3}, Waiting: map[string]int64{"executions_not_ended": 1}}, decode[Purge](t, w))
	assert.Empty(t, kept.list)

	w = b.do("POST", "/v1/purges", `{"user":"eve","cancel":true,"reason":"asked for it"}`, as("admin")...)
	require.Equal(t, 202, w.Code, w.Body.String())
	p := decode[Purge](t, w)
	assert.Equal(t, "/v1/purges/"+p.ID, w.Header().Get("Location"))
	assert.Equal(t, hex.EncodeToString(purge.HashOf("eve")), p.UserHash)
	assert.NotContains(t, w.Body.String(), "eve", "the user is not named")
	assert.Equal(t, purge.Request{User: "eve", Cancel: true, Actor: "ada", Reason: "asked for it"}, kept.last, "the actor is the owner of the token")
	w = b.do("POST", "/v1/purges", `{"user":"eve","reason":"again"}`, as("admin")...)
	require.Equal(t, 200, w.Code, "the same purge")
	assert.Equal(t, p.ID, decode[Purge](t, w).ID)

	second := decode[Purge](t, b.do("POST", "/v1/purges", `{"user":"bob","tenant":"other","reason":"r"}`, as("admin")...))
	page := decode[PurgeList](t, b.do("GET", "/v1/purges?page_size=1", "", as("viewer")...))
	require.Len(t, page.Purges, 1)
	assert.Equal(t, second.ID, page.Purges[0].ID)
	page = decode[PurgeList](t, b.do("GET", "/v1/purges?page_token="+page.NextPageToken, "", as("viewer")...))
	require.Len(t, page.Purges, 1)
	assert.Equal(t, p.ID, page.Purges[0].ID)
	assert.Empty(t, page.NextPageToken)

	assert.Equal(t, p.ID, decode[Purge](t, b.do("GET", "/v1/purges/"+p.ID, "", as("viewer")...)).ID)
	assert.Equal(t, 403, b.do("GET", "/v1/purges", "", as("acme")...).Code)
	assert.Equal(t, 404, b.do("GET", "/v1/purges/"+p.ID, "", as("acme")...).Code, "of no tenant's business")
	assert.Equal(t, 403, b.do("POST", "/v1/purges", `{"user":"a","reason":"r"}`, as("viewer")...).Code)

	assert.Equal(t, purge.Cancelled, decode[Purge](t, b.do("POST", "/v1/purges/"+p.ID+"/cancel", "", as("admin")...)).State)
	kept.list[1].State = purge.Done
	requireProblem(t, b.do("POST", "/v1/purges/"+second.ID+"/cancel", "", as("admin")...), 409, "purge_over")
	requireProblem(t, b.do("GET", "/v1/purges/"+uuid.NewString(), "", as("admin")...), 404, "purge_not_found")
	requireProblem(t, b.do("GET", "/v1/purges?page_token=x", "", as("admin")...), 400, "invalid_page_token")
	assert.Equal(t, 403, b.do("POST", "/v1/purges", `{"user":"a","tenant":"other","reason":"r"}`, as("acmeadmin")...).Code)
	require.Equal(t, 202, b.do("POST", "/v1/purges", `{"user":"a","reason":"r"}`, as("acmeadmin")...).Code)
	assert.Equal(t, "acme", kept.last.Tenant)
	for _, body := range []string{`{"reason":"r"}`, `{"user":"a\u0007b","reason":"r"}`, `{"user":"ada","reason":"r","more":1}`} {
		assert.Contains(t, []int{400, 422}, b.do("POST", "/v1/purges", body, as("admin")...).Code, body)
	}
}
