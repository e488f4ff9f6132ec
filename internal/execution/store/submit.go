package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/topics"
)

// Submitted is the outcome of one submitted request.
type Submitted struct {
	// Execution is the new one, or the earlier one when Replayed.
	Execution *execution.Execution
	// Replayed is true when the idempotency key had led to this execution before.
	Replayed bool
	// Err is why the request was refused: an *execution.InvalidError or
	// ErrIdempotencyConflict. The other requests are not affected.
	Err error
}

// submission is one valid request on its way into the tables.
type submission struct {
	index int
	req   topics.Request
	id    string
	hash  []byte
	ref   idempotencyRef
}

// idempotencyRef is an idempotency key with the tenant it belongs to.
type idempotencyRef struct{ tenant, key string }

// Submit records requests as new executions and puts their events into the
// outbox, all in one transaction. Each request is judged for itself; the results
// are in the order of the requests. An error means that nothing was stored.
func (s *Store) Submit(ctx context.Context, reqs []topics.Request) ([]Submitted, error) {
	results := make([]Submitted, len(reqs))
	var valid []*submission
	for i := range reqs {
		req := reqs[i]
		if err := execution.Normalize(&req, time.Now()); err != nil {
			results[i].Err = err
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make execution id: %w", err)
		}
		hash, err := hashRequest(req)
		if err != nil {
			return nil, err
		}
		valid = append(valid, &submission{
			index: i, req: req, id: id.String(), hash: hash,
			ref: idempotencyRef{tenant: req.Tenant, key: req.IdempotencyKey},
		})
	}
	if len(valid) == 0 {
		return results, nil
	}
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return submit(ctx, tx, valid, results)
	})
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	crash.At("submit.recorded")
	return results, nil
}

// hashRequest is the fingerprint by which a repeated request is told from a
// different one under the same idempotency key.
func hashRequest(req topics.Request) ([]byte, error) {
	req.IdempotencyKey = ""
	req.Origin = topics.Origin{}
	var compact bytes.Buffer
	if err := json.Compact(&compact, req.Spec); err != nil {
		return nil, fmt.Errorf("compact spec: %w", err)
	}
	req.Spec = compact.Bytes()
	text, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("hash request: %w", err)
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

func submit(ctx context.Context, tx pgx.Tx, valid []*submission, results []Submitted) error {
	fresh, err := claimKeys(ctx, tx, valid, results)
	if err != nil {
		return err
	}
	if len(fresh) == 0 {
		return nil
	}
	seqs, err := drawConcurrencySeqs(ctx, tx, fresh)
	if err != nil {
		return err
	}
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return err
	}
	change := &change{}
	for _, sub := range fresh {
		e := execution.New(sub.id, sub.req, now.UTC())
		results[sub.index].Execution = e
		change.touch(e)
	}
	err = inBatch(ctx, tx, func(b statements) error {
		if err := insert(ctx, b, change.executions, seqs); err != nil {
			return fmt.Errorf("insert executions: %w", err)
		}
		return change.publish(ctx, b)
	})
	crash.At("submit.recording")
	return err
}

// claimKeys stores the idempotency keys of the submissions and returns those
// that are new. Of two transactions with the same key the second waits here for
// the first to end, and then finds its key taken.
func claimKeys(ctx context.Context, tx pgx.Tx, valid []*submission, results []Submitted) ([]*submission, error) {
	var fresh, keyed []*submission
	for _, sub := range valid {
		if sub.ref.key == "" {
			fresh = append(fresh, sub)
		} else {
			keyed = append(keyed, sub)
		}
	}
	if len(keyed) == 0 {
		return fresh, nil
	}
	// One order of locks for all, or two batches with the same keys could deadlock.
	slices.SortStableFunc(keyed, func(a, b *submission) int {
		return compareRefs(a.ref, b.ref)
	})
	first := make(map[idempotencyRef]*submission, len(keyed))
	var tenants, keys, ids []string
	var hashes [][]byte
	for _, sub := range keyed {
		if first[sub.ref] != nil {
			continue
		}
		first[sub.ref] = sub
		tenants, keys, ids = append(tenants, sub.ref.tenant), append(keys, sub.ref.key), append(ids, sub.id)
		hashes = append(hashes, sub.hash)
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO idempotency_keys (tenant, key, execution_id, request_hash)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[]::uuid[], $4::bytea[])
		ON CONFLICT DO NOTHING`, tenants, keys, ids, hashes); err != nil {
		return nil, fmt.Errorf("insert idempotency keys: %w", err)
	}
	owners, err := keyOwners(ctx, tx, tenants, keys)
	if err != nil {
		return nil, err
	}
	for _, sub := range keyed {
		owner, known := owners[sub.ref]
		switch {
		case !known:
			return nil, fmt.Errorf("idempotency key %q vanished while it was being used", sub.ref.key)
		case owner.id == sub.id:
			fresh = append(fresh, sub)
		case !bytes.Equal(owner.hash, sub.hash):
			results[sub.index].Err = ErrIdempotencyConflict
		default:
			results[sub.index].Replayed = true
			if err := replay(ctx, tx, sub, owner.id, first, results); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(fresh, func(a, b *submission) int { return a.index - b.index })
	return fresh, nil
}

// replay fills in the execution that the key led to before: an older one, or one
// of this very batch, which is not in the table yet.
func replay(
	ctx context.Context, tx pgx.Tx, sub *submission, id string, first map[idempotencyRef]*submission, results []Submitted,
) error {
	if head := first[sub.ref]; head.id == id {
		results[sub.index].Execution = &execution.Execution{ID: id, Request: head.req, State: execution.Requested}
		return nil
	}
	e, err := get(ctx, tx, id)
	if errors.Is(err, ErrNotFound) {
		// The execution is gone (purged), the key is still remembered.
		e, err = &execution.Execution{ID: id, Request: sub.req}, nil
	}
	results[sub.index].Execution = e
	return err
}

func compareRefs(a, b idempotencyRef) int {
	switch {
	case a == b:
		return 0
	case a.tenant < b.tenant || (a.tenant == b.tenant && a.key < b.key):
		return -1
	default:
		return 1
	}
}

type keyOwner struct {
	id   string
	hash []byte
}

func keyOwners(ctx context.Context, tx pgx.Tx, tenants, keys []string) (map[idempotencyRef]keyOwner, error) {
	rows, err := tx.Query(ctx, `
		SELECT k.tenant, k.key, k.execution_id::text, k.request_hash
		FROM idempotency_keys k
		JOIN unnest($1::text[], $2::text[]) AS w(tenant, key) ON k.tenant = w.tenant AND k.key = w.key`, tenants, keys)
	if err != nil {
		return nil, fmt.Errorf("read idempotency keys: %w", err)
	}
	owners := make(map[idempotencyRef]keyOwner, len(keys))
	var ref idempotencyRef
	var owner keyOwner
	_, err = pgx.ForEachRow(rows, []any{&ref.tenant, &ref.key, &owner.id, &owner.hash}, func() error {
		owners[ref] = keyOwner{id: owner.id, hash: bytes.Clone(owner.hash)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read idempotency keys: %w", err)
	}
	return owners, nil
}

// drawConcurrencySeqs draws the place of each execution among those with its
// concurrency key. The advisory lock on the key is held to the end of the
// transaction, so the places are in the order of commit.
func drawConcurrencySeqs(ctx context.Context, tx pgx.Tx, fresh []*submission) ([]*int64, error) {
	seqs := make([]*int64, len(fresh))
	var keyed []int
	var locks []string
	for i, sub := range fresh {
		if sub.req.ConcurrencyKey != "" {
			keyed, locks = append(keyed, i), append(locks, concurrencyLock(sub.req))
		}
	}
	if len(keyed) == 0 {
		return seqs, nil
	}
	if _, err := tx.Exec(ctx, lockConcurrencyKeys, locks); err != nil {
		return nil, fmt.Errorf("lock concurrency keys: %w", err)
	}
	rows, err := tx.Query(ctx, drawConcurrencyPlaces, len(keyed))
	if err != nil {
		return nil, fmt.Errorf("draw concurrency sequence: %w", err)
	}
	drawn, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("draw concurrency sequence: %w", err)
	}
	for n, i := range keyed {
		seqs[i] = &drawn[n]
	}
	return seqs, nil
}

// lockConcurrencyKeys locks keys in one order for all, or two batches with the same ones
// could deadlock. drawConcurrencyPlaces runs behind it.
const (
	lockConcurrencyKeys = `
		SELECT pg_advisory_xact_lock(n)
		FROM (SELECT DISTINCT hashtextextended(k, 0) AS n FROM unnest($1::text[]) AS k ORDER BY 1) AS sorted`
	drawConcurrencyPlaces = `SELECT nextval('execution_concurrency_seq') FROM generate_series(1, $1::integer)`
)

// concurrencyLock is what is locked for the key of a request.
func concurrencyLock(r topics.Request) string { return r.Tenant + "\x1f" + r.ConcurrencyKey }

// insert writes new executions in one statement.
func insert(ctx context.Context, tx statements, executions []*execution.Execution, seqs []*int64) error {
	n := len(executions)
	ids, tenants, users, executors, classes := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	slots, keys, requests := make([]int, n), make([]*string, n), make([]string, n)
	cpus, memory, gpus := make([]int64, n), make([]int64, n), make([]int, n)
	due, requested := make([]*time.Time, n), make([]time.Time, n)
	for i, e := range executions {
		r := e.Request
		ids[i], tenants[i], users[i], executors[i], classes[i] = e.ID, r.Tenant, r.User, r.Executor, r.ResourceClass
		slots[i], due[i], requested[i] = e.Slots(), nullable(e.DueAt), e.RequestedAt
		cpus[i], memory[i], gpus[i] = r.Requirements.CPUMillis, r.Requirements.MemoryBytes, r.Requirements.GPUs
		if r.ConcurrencyKey != "" {
			keys[i] = &r.ConcurrencyKey
		}
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		requests[i] = string(text)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO executions (id, tenant, user_name, executor, resource_class, slots, cpu_millis, memory_bytes, gpus,
			concurrency_key, concurrency_seq, request, state, version, due_at, requested_at)
		SELECT n.id, n.tenant, n.user_name, n.executor, n.resource_class, n.slots, n.cpu_millis, n.memory_bytes, n.gpus, n.concurrency_key,
			n.concurrency_seq, n.request::jsonb, 'REQUESTED', 1, n.due_at, n.requested_at
		FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[],
			$8::bigint[], $9::text[], $10::timestamptz[], $11::timestamptz[], $12::bigint[], $13::bigint[], $14::integer[])
			AS n(id, tenant, user_name, executor, resource_class, slots, concurrency_key, concurrency_seq,
				request, due_at, requested_at, cpu_millis, memory_bytes, gpus)`,
		ids, tenants, users, executors, classes, slots, keys, seqs, requests, due, requested, cpus, memory, gpus)
	return err
}

// jsonText encodes a value for a nullable jsonb column; a nil pointer is null.
func jsonText[T any](v *T) (*string, error) {
	if v == nil {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := string(text)
	return &s, nil
}
