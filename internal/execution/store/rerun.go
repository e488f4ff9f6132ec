package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/topics"
)

// ErrNotEnded: the execution is still on its way, so there is nothing to repeat.
var ErrNotEnded = errors.New("execution has not ended")

// originRerun is the kind of origin of what Rerun submits.
const originRerun = "rerun"

// Rerun asks for executions that have ended to be done once more, each as a new
// execution with the same request.
type Rerun struct {
	// IDs name the executions.
	IDs []string
	// Tenant, if set, is the only one whose executions there are.
	Tenant string
	// By and Reason are recorded in the origin of the new executions.
	By, Reason string
	// Key, if set, makes the order repeatable: under one key an execution is rerun
	// once, and asking again leads to the same new execution.
	Key string
}

// Rerun submits the requests of r.IDs again. The results are in the order of the
// ids; one that cannot be rerun has an Err that wraps ErrNotFound, ErrNotEnded or
// ErrIdempotencyConflict, and the others are not affected. An error means that
// nothing was submitted.
func (s *Store) Rerun(ctx context.Context, r Rerun) ([]Submitted, error) {
	found, err := s.ended(ctx, r.IDs)
	if err != nil {
		return nil, fmt.Errorf("rerun: %w", err)
	}
	results := make([]Submitted, len(r.IDs))
	var reqs []topics.Request
	var indexes []int
	for i, id := range r.IDs {
		e, ok := found[id]
		switch {
		case !ok || r.Tenant != "" && e.Request.Tenant != r.Tenant:
			results[i].Err = fmt.Errorf("execution %s: %w", id, ErrNotFound)
		case !e.State.Terminal():
			results[i].Err = fmt.Errorf("execution %s is %s: %w", id, e.State, ErrNotEnded)
		default:
			req, err := r.request(e)
			if err != nil {
				return nil, fmt.Errorf("rerun: %w", err)
			}
			reqs, indexes = append(reqs, req), append(indexes, i)
		}
	}
	submitted, err := s.Submit(ctx, reqs)
	if err != nil {
		return nil, fmt.Errorf("rerun: %w", err)
	}
	for i, one := range submitted {
		results[indexes[i]] = one
	}
	return results, nil
}

// ended reads executions by their ids. They need no lock: what has ended stays as
// it is.
func (s *Store) ended(ctx context.Context, ids []string) (map[string]*execution.Execution, error) {
	known := make([]string, 0, len(ids))
	for _, id := range ids {
		if checkID(id) == nil {
			known = append(known, id)
		}
	}
	rows, err := s.pool.Query(ctx, `SELECT `+columns+` FROM executions WHERE id = ANY($1::text[]::uuid[])`, known)
	if err != nil {
		return nil, fmt.Errorf("read executions: %w", err)
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("read executions: %w", err)
	}
	found := make(map[string]*execution.Execution, len(list))
	for _, l := range list {
		found[l.ID] = l.Execution
	}
	return found, nil
}

// request is what e asked for, from a new origin and under a key of its own: that
// of e belongs to e. A start in the future is over by now.
func (r Rerun) request(e *execution.Execution) (topics.Request, error) {
	req := e.Request
	req.NotBefore = nil
	req.IdempotencyKey = ""
	if r.Key != "" {
		sum := sha256.Sum256([]byte(r.Key + "\x00" + e.ID))
		req.IdempotencyKey = originRerun + ":" + hex.EncodeToString(sum[:16])
	}
	metadata, err := json.Marshal(struct {
		By     string `json:"by,omitempty"`
		Reason string `json:"reason,omitempty"`
	}{r.By, r.Reason})
	req.Origin = topics.Origin{Kind: originRerun, RerunOf: e.ID, Metadata: metadata}
	return req, err
}
