package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/rebuild"
)

const rebuildID = "01980000-0000-7000-8000-000000000077"

// someRebuilds is a projection with one rebuild.
type someRebuilds struct {
	asked []string
	order rebuild.Order
	err   error
}

func (s *someRebuilds) session() rebuild.Session {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one, two := int64(1), int64(2)
	return rebuild.Session{
		ID: uuid.MustParse(rebuildID), Order: rebuild.Order{Projection: "data-index", Mode: rebuild.ModeVerify, Source: rebuild.FromKafka, Actor: "ada", Reason: "why"},
		State: rebuild.Running, Phase: rebuild.Loading, Passed: 250, Total: 1000, PerSecond: 50, Skipped: 1, SkippedFirst: "offset 7",
		Rows: &two, RowsBuilt: &one, Carried: &one, Horizon: &at, Missing: &one, Surplus: &two, Different: &one, Note: "waits", CreatedAt: at, UpdatedAt: at,
	}
}

func (s *someRebuilds) Projections(context.Context) ([]rebuild.Status, error) {
	last := s.session()
	return []rebuild.Status{{
		Name: "data-index", Topic: "flows", Version: "b", Built: "a", Tables: []rebuild.TableStatus{{Name: "workflow_instances", Rows: 5, Bytes: 8192}}, Last: &last,
	}}, s.err
}

func (s *someRebuilds) Projection(ctx context.Context, name string) (rebuild.Status, error) {
	if name != "data-index" {
		return rebuild.Status{}, fmt.Errorf("projection %q: %w", name, rebuild.ErrNoProjection)
	}
	list, err := s.Projections(ctx)
	return list[0], err
}

func (s *someRebuilds) Estimate(_ context.Context, o rebuild.Order) (rebuild.Estimate, error) {
	s.order = o
	free := int64(9)
	return rebuild.Estimate{Records: 1000, Bytes: 8192, Free: &free}, s.err
}

func (s *someRebuilds) Start(_ context.Context, o rebuild.Order) (rebuild.Session, error) {
	s.order = o
	return s.session(), s.err
}

func (s *someRebuilds) Get(_ context.Context, id string) (rebuild.Session, error) {
	if id != rebuildID {
		return rebuild.Session{}, rebuild.ErrNotFound
	}
	return s.session(), nil
}

func (s *someRebuilds) List(_ context.Context, projection string, limit int) ([]rebuild.Session, error) {
	s.asked = append(s.asked, fmt.Sprint("list ", projection, " ", limit))
	return []rebuild.Session{s.session()}, s.err
}

func (s *someRebuilds) Differences(_ context.Context, id string, from, limit int) ([]rebuild.Difference, error) {
	s.asked = append(s.asked, fmt.Sprint("differences ", id, " ", from, " ", limit))
	one := rebuild.Difference{Table: "workflow_instances", Kind: rebuild.Different, Key: json.RawMessage(`{"id": "w"}`), Columns: json.RawMessage(`{"name": {"table": "a", "history": "b"}}`)}
	return []rebuild.Difference{one, one}[:min(limit, 2)], s.err
}

func (s *someRebuilds) do(verb, id string) (rebuild.Session, error) {
	s.asked = append(s.asked, verb+" "+id)
	return s.session(), s.err
}

func (s *someRebuilds) Pause(_ context.Context, id string) (rebuild.Session, error) {
	return s.do("pause", id)
}

func (s *someRebuilds) Resume(_ context.Context, id string) (rebuild.Session, error) {
	return s.do("resume", id)
}

func (s *someRebuilds) Cancel(_ context.Context, id string) (rebuild.Session, error) {
	return s.do("cancel", id)
}

const rebuildJSON = `{"id":"` + rebuildID + `","projection":"data-index","mode":"verify","from":"kafka","state":"RUNNING","phase":"loading","done":250,"total":1000,
	"per_second":50,"remaining_seconds":15,"skipped":1,"skipped_first":"offset 7","rows":2,"rows_built":1,"carried":1,"horizon":"2026-01-02T03:04:05Z",
	"missing":1,"surplus":2,"different":1,"actor":"ada","reason":"why","note":"waits","created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z"}`

func TestProjectionsAreShown(t *testing.T) {
	t.Parallel()
	s := &someRebuilds{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Rebuilds = s })
	one := `{"name":"data-index","topic":"flows","version":"b","built_version":"a","rebuild_advised":true,
		"tables":[{"name":"workflow_instances","rows":5,"bytes":8192}],"last_rebuild":` + rebuildJSON + `}`
	withoutLag := func(text string) string {
		var p map[string]any
		assert.NoError(t, json.Unmarshal([]byte(text), &p))
		delete(p, "lag") // that of its consumer
		out, _ := json.Marshal(p)
		return string(out)
	}
	w := b.do("GET", "/v1/projections/data-index", "")
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, one, withoutLag(w.Body.String()))
	assert.Equal(t, 200, b.do("GET", "/v1/projections", "").Code)
	assert.Contains(t, b.do("GET", "/v1/projections/nobody", "").Body.String(), "projection_not_found")
	path := "/v1/projections/data-index/rebuilds"
	assert.JSONEq(t, `{"rebuilds":[`+rebuildJSON+`]}`, b.do("GET", path+"?limit=7", "").Body.String())
	assert.JSONEq(t, rebuildJSON, b.do("GET", path+"/"+rebuildID, "").Body.String())
	assert.Contains(t, b.do("GET", path+"/x", "").Body.String(), "rebuild_not_found")
	assert.Contains(t, b.do("GET", "/v1/projections/another/rebuilds/"+rebuildID, "").Body.String(), "rebuild_not_found", "it is not of that projection")
	difference := `{"table":"workflow_instances","kind":"different","key":{"id":"w"},"columns":{"name":{"table":"a","history":"b"}}}`
	assert.JSONEq(t, `{"differences":[`+difference+`],"next_page_token":"4"}`, b.do("GET", path+"/"+rebuildID+"/differences?page_size=1&page_token=3", "").Body.String())
	assert.JSONEq(t, `{"differences":[`+difference+`,`+difference+`]}`, b.do("GET", path+"/"+rebuildID+"/differences", "").Body.String())
	assert.Contains(t, b.do("GET", path+"/"+rebuildID+"/differences?page_token=-1", "").Body.String(), "invalid_page_token")
	assert.Equal(t, []string{"list data-index 7", "differences " + rebuildID + " 3 2", "differences " + rebuildID + " 0 51"}, s.asked)
}

func TestRebuildsAreStartedAndChanged(t *testing.T) {
	t.Parallel()
	s := &someRebuilds{}
	b := newBench(t, func(d *Deps, _ *Config) { d.Rebuilds = s })
	path := "/v1/projections/data-index/rebuilds"
	w := b.do("POST", path, `{"mode":"verify","from":"kafka","keep_old":"24h","force":true,"reason":"why"}`)
	assert.Equal(t, 202, w.Code)
	assert.Equal(t, path+"/"+rebuildID, w.Header().Get("Location"))
	assert.JSONEq(t, rebuildJSON, w.Body.String())
	assert.Equal(t, rebuild.Order{
		Projection: "data-index", Mode: rebuild.ModeVerify, Source: rebuild.FromKafka, KeepOld: 24 * time.Hour, Force: true, Actor: s.order.Actor, Reason: "why",
	}, s.order)
	assert.Equal(t, 202, b.do("POST", path, "").Code)
	assert.Equal(t, rebuild.ModeRebuild, s.order.Mode)
	w = b.do("POST", path, `{"dry_run":true}`)
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"records":1000,"bytes":8192,"free_bytes":9}`, w.Body.String())
	w = b.do("POST", path, `{"mode":"x","from":"tape","keep_old":"soon"}`)
	assert.Equal(t, 422, w.Code)
	for _, pointer := range []string{"/mode", "/from", "/keep_old"} {
		assert.Contains(t, w.Body.String(), `"`+pointer+`"`)
	}
	for _, verb := range []string{"pause", "resume", "cancel"} {
		w := b.do("POST", path+"/"+rebuildID+"/"+verb, "")
		assert.Equal(t, 200, w.Code)
		assert.JSONEq(t, rebuildJSON, w.Body.String())
	}
	assert.Equal(t, []string{"pause " + rebuildID, "resume " + rebuildID, "cancel " + rebuildID}, s.asked)
	for _, err := range []error{rebuild.ErrBusy, rebuild.ErrState, rebuild.ErrNoHistory, rebuild.ErrNoRoom, rebuild.ErrUnfit, rebuild.ErrNoSource} {
		s.err = err
		w := b.do("POST", path, "")
		assert.Equal(t, 409, w.Code)
		assert.Contains(t, w.Body.String(), err.Error())
	}
}
