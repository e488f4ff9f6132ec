package rest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/millrace/millrace/internal/consumers"
	"github.com/millrace/millrace/internal/rebuild"
)

// Projection is how a projection stands.
type Projection struct {
	Name           string            `json:"name"`
	Topic          string            `json:"topic"`
	Tables         []ProjectionTable `json:"tables"`
	Lag            *int64            `json:"lag,omitempty" doc:"How many records its consumer has still to apply; missing where that is not known"`
	Version        string            `json:"version" doc:"Of its declaration"`
	BuiltVersion   string            `json:"built_version,omitempty" doc:"Of the declaration by which the rows were built"`
	BuiltAt        *time.Time        `json:"built_at,omitempty" doc:"Since when the rows are built by that declaration"`
	RebuildAdvised bool              `json:"rebuild_advised,omitempty" doc:"The declaration has changed since the rows were built"`
	LastRebuild    *Rebuild          `json:"last_rebuild,omitempty" doc:"The last rebuild or comparison"`
}

// ProjectionTable is a table of a projection.
type ProjectionTable struct {
	Name  string `json:"name"`
	Rows  int64  `json:"rows" doc:"About how many"`
	Bytes int64  `json:"bytes" doc:"With indexes"`
}

// ProjectionList is all projections.
type ProjectionList struct {
	Projections []Projection `json:"projections"`
}

// RebuildRequest is the body of a rebuild. It may be missing.
type RebuildRequest struct {
	Mode    string `json:"mode,omitempty" enum:"rebuild,verify" default:"rebuild" doc:"verify compares and changes nothing"`
	From    string `json:"from,omitempty" enum:"event_log,kafka" default:"event_log" doc:"The history that is read"`
	KeepOld string `json:"keep_old,omitempty" example:"24h" doc:"Keep the tables that are replaced for so long, under names that end in __replaced"`
	Force   bool   `json:"force,omitempty" doc:"Go on although the disk may be too small, and although more than a tenth of the rows would be gone"`
	DryRun  bool   `json:"dry_run,omitempty" doc:"Say what it would need and change nothing"`
	Reason  string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the audit"`
}

// RebuildEstimate is what a rebuild would need.
type RebuildEstimate struct {
	Records   int64  `json:"records" doc:"About how many are read"`
	Bytes     int64  `json:"bytes" doc:"About how large the second copy of the tables is"`
	FreeBytes *int64 `json:"free_bytes,omitempty" doc:"By how much the database may grow, where that is known"`
}

// Rebuild is a rebuild of a projection, or a comparison, and what came of it.
type Rebuild struct {
	ID           string        `json:"id" format:"uuid"`
	Projection   string        `json:"projection"`
	Mode         rebuild.Mode  `json:"mode" doc:"rebuild or verify"`
	From         string        `json:"from" doc:"event_log or kafka"`
	State        rebuild.State `json:"state" doc:"RUNNING, PAUSED, CANCELLING, CANCELLED, FAILED or DONE" example:"RUNNING"`
	Phase        rebuild.Phase `json:"phase" doc:"preparing, loading, indexing, comparing, catching_up, swapping or finished"`
	Done         int64         `json:"done" doc:"How much of the history has been applied, in offsets"`
	Total        int64         `json:"total" doc:"Out of how much"`
	PerSecond    float64       `json:"per_second,omitempty" doc:"How fast, lately"`
	Remaining    float64       `json:"remaining_seconds,omitempty" doc:"How long loading will still take, about"`
	Skipped      int64         `json:"skipped,omitempty" doc:"Records that could not be applied: they are dead letters of the projection"`
	SkippedFirst string        `json:"skipped_first,omitempty" doc:"The first of them"`
	Rows         *int64        `json:"rows,omitempty" doc:"How many the tables had"`
	RowsBuilt    *int64        `json:"rows_built,omitempty" doc:"How many the history makes"`
	Carried      *int64        `json:"carried,omitempty" doc:"How many were carried over because their history is older than the source"`
	Horizon      *time.Time    `json:"horizon,omitempty" doc:"Since when the source is whole, unless it always was"`
	Missing      *int64        `json:"missing,omitempty" doc:"Rows that the tables lacked; like the next two missing as long as nothing was compared"`
	Surplus      *int64        `json:"surplus,omitempty" doc:"Rows of the tables that nothing in the history speaks of"`
	Different    *int64        `json:"different,omitempty" doc:"Rows with other values than the history makes"`
	Force        bool          `json:"force,omitempty"`
	Actor        string        `json:"actor"`
	Reason       string        `json:"reason,omitempty"`
	Note         string        `json:"note,omitempty" doc:"What it waits for, or why it failed"`
	CreatedAt    time.Time     `json:"created_at"`
	UpdatedAt    time.Time     `json:"updated_at"`
	FinishedAt   *time.Time    `json:"finished_at,omitempty"`
	OldUntil     *time.Time    `json:"old_until,omitempty" doc:"When the replaced tables are dropped"`
}

// RebuildList is rebuilds of a projection.
type RebuildList struct {
	Rebuilds []Rebuild `json:"rebuilds"`
}

// Difference is a row in which table and history differ.
type Difference struct {
	Table   string          `json:"table"`
	Kind    rebuild.Kind    `json:"kind" doc:"missing, surplus or different"`
	Key     json.RawMessage `json:"key" doc:"The columns of the key"`
	Columns json.RawMessage `json:"columns" doc:"Per column that differs the values in the table and by the history"`
}

// DifferenceList is one page of differences.
type DifferenceList struct {
	Differences   []Difference `json:"differences"`
	NextPageToken string       `json:"next_page_token,omitempty" doc:"Asks for the next page; missing on the last"`
}

func (a *API) fromProjection(ctx context.Context, s rebuild.Status) Projection {
	p := Projection{
		Name: s.Name, Topic: s.Topic, Version: s.Version, BuiltVersion: s.Built, BuiltAt: s.BuiltAt, RebuildAdvised: s.RebuildAdvised(),
		Tables: make([]ProjectionTable, len(s.Tables)),
	}
	for i, t := range s.Tables {
		p.Tables[i] = ProjectionTable{Name: t.Name, Rows: t.Rows, Bytes: t.Bytes}
	}
	if s.Last != nil {
		last := fromRebuild(*s.Last)
		p.LastRebuild = &last
	}
	// The lag is worth having, and not worth failing for: the consumer may never have run.
	if status, err := a.deps.Consumers.Get(ctx, s.Name); err == nil && status.Lag != consumers.Unknown {
		p.Lag = &status.Lag
	}
	return p
}

func fromRebuild(s rebuild.Session) Rebuild {
	r := Rebuild{
		ID: s.ID.String(), Projection: s.Projection, Mode: s.Mode, From: s.Source, State: s.State, Phase: s.Phase,
		Done: s.Passed, Total: s.Total, PerSecond: s.PerSecond, Skipped: s.Skipped, SkippedFirst: s.SkippedFirst,
		Rows: s.Rows, RowsBuilt: s.RowsBuilt, Carried: s.Carried, Horizon: s.Horizon,
		Missing: s.Missing, Surplus: s.Surplus, Different: s.Different, Force: s.Force, Actor: s.Actor, Reason: s.Reason, Note: s.Note,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt, FinishedAt: s.FinishedAt, OldUntil: s.OldUntil,
	}
	if s.PerSecond > 0 && s.Phase == rebuild.Loading && s.Total > s.Passed {
		r.Remaining = float64(s.Total-s.Passed) / s.PerSecond
	}
	return r
}
