package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
)

// Apply implements pipeline.Store.
func (s *Store) Apply(ctx context.Context, w pipeline.Work) ([]pipeline.Verdict, error) {
	var verdicts []pipeline.Verdict
	var appended bool
	err := postgres.InTx(ctx, s.db, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		verdicts, err = applyIn(ctx, effectTx{Tx: tx, appended: &appended}, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	if appended {
		s.wake()
	}
	return verdicts, nil
}

func applyIn(ctx context.Context, tx effectTx, w pipeline.Work) ([]pipeline.Verdict, error) {
	verdicts, redriven, err := enter(ctx, tx, w)
	if err != nil {
		return nil, err
	}
	if err := runEffect(ctx, tx, w, verdicts); err != nil {
		return nil, err
	}
	if err := fileLetters(ctx, tx, w, verdicts); err != nil {
		return nil, pipeline.Infrastructure(fmt.Errorf("file dead letters: %w", err))
	}
	for i, e := range w.Entries {
		if e.With == nil || e.Letter == nil || verdicts[i] != pipeline.Fresh {
			continue
		}
		if err := e.With(ctx, tx); err != nil {
			return nil, pipeline.Infrastructure(err)
		}
	}
	if len(redriven) > 0 {
		if err := deadletter.Resolve(ctx, tx, w.Consumer, redriven); err != nil {
			return nil, pipeline.Infrastructure(err)
		}
	}
	return verdicts, nil
}

// FOR NO KEY UPDATE is the lock that movePosition takes anyway.
const lockPosition = `
SELECT next_offset, owner_epoch FROM consumer_offsets
WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3
FOR NO KEY UPDATE`

// Below the position nothing is inserted: there may be a dead letter, whose
// redrive must not find an inbox row. The statement runs after lockPosition, so
// it sees the row that is locked.
//
// New keys go to the newest generation, whose primary key decides about keys that
// others insert at the same time. Older generations are only looked into. None of
// their rows is still to be committed: a generation begins while nobody holds the
// lock that this statement takes on processed_events, and it takes it before it
// looks. OFFSET 0 has the lookup done key by key, whatever the planner thinks of
// the sizes.
const insertProcessed = `
INSERT INTO processed_events (consumer, source, event_id, session, generation)
SELECT $4, e.source, e.event_id, e.session, g.number
FROM consumer_offsets o,
     (SELECT max(number) AS number FROM processed_generations) AS g,
     unnest($6::bigint[], $7::text[], $8::text[], $9::text[]) WITH ORDINALITY AS e (at, source, event_id, session, n)
WHERE o.consumer_group = $1 AND o.topic_id = $2 AND o.partition = $3 AND o.owner_epoch = $5
  AND e.at >= o.next_offset
  AND NOT EXISTS (SELECT FROM processed_events p
                  WHERE p.consumer = $4 AND p.source = e.source AND p.event_id = e.event_id AND p.session = e.session
                    AND p.generation < g.number OFFSET 0)
ORDER BY e.n
ON CONFLICT DO NOTHING
RETURNING source, event_id, session`

// The position never moves backwards: where all of the work was settled before,
// this changes nothing. Under a foreign epoch the transaction is rolled back
// anyway, so the test of it here is the second line.
const movePosition = `
UPDATE consumer_offsets SET next_offset = $4, updated_at = now()
WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3 AND owner_epoch = $5 AND next_offset < $4`

// enter locks the position, checks the epoch, finds out what is fresh, and moves
// the position, in one round trip. That the position is moved before the effect is
// known makes no difference: both are seen by nobody before the commit.
//
// It also returns the dead letters whose redriven records are processed now, or
// were processed under another offset. A record below the position tells nothing:
// it may have ended as a letter itself.
func enter(ctx context.Context, tx pgx.Tx, w pipeline.Work) (verdicts []pipeline.Verdict, redriven []string, err error) {
	group, topicID, partition := w.Partition.Group, uuid.UUID(w.Partition.TopicID), w.Partition.Partition
	batch := &pgx.Batch{}
	batch.Queue(lockPosition, group, topicID, partition)
	keys := newIdentities(w.Entries)
	if keys.any() {
		batch.Queue(insertProcessed, group, topicID, partition, w.Consumer, w.Epoch,
			keys.offsets, keys.sources, keys.ids, keys.sessions)
	}
	batch.Queue(movePosition, group, topicID, partition, w.Next, w.Epoch)
	results := tx.SendBatch(ctx, batch)
	next, err := readPosition(results, w.Epoch)
	if err == nil && keys.any() {
		err = keys.readFresh(results)
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return nil, nil, fmt.Errorf("enter inbox: %w", err)
	}
	verdicts = make([]pipeline.Verdict, len(w.Entries))
	for i, e := range w.Entries {
		if e.Offset < next || !keys.claim(e) {
			verdicts[i] = pipeline.Repeated
		}
		if e.RedriveOf != "" && e.Letter == nil && e.Offset >= next {
			redriven = append(redriven, e.RedriveOf)
		}
	}
	return verdicts, redriven, nil
}

func readPosition(results pgx.BatchResults, epoch int64) (int64, error) {
	var next, owner int64
	err := results.QueryRow().Scan(&next, &owner)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("the partition was never taken: %w", pipeline.ErrFenced)
	case err != nil:
		return 0, err
	case owner != epoch:
		return 0, fmt.Errorf("epoch %d, the owner's is %d: %w", epoch, owner, pipeline.ErrFenced)
	}
	return next, nil
}

// identities are the inbox keys of the entries that have one, as columns.
type identities struct {
	offsets                []int64
	sources, ids, sessions []string
	// inserted are the keys that were not in the inbox before and that no entry has
	// claimed yet.
	inserted map[pipeline.Identity]bool
}

func newIdentities(entries []pipeline.Entry) *identities {
	k := &identities{}
	for _, e := range entries {
		if e.Identity == nil || e.Letter != nil {
			continue
		}
		k.offsets = append(k.offsets, e.Offset)
		k.sources = append(k.sources, e.Identity.Source)
		k.ids = append(k.ids, e.Identity.ID)
		k.sessions = append(k.sessions, e.Identity.Session)
	}
	return k
}

func (k *identities) any() bool { return len(k.ids) > 0 }

// readFresh reads which keys were inserted, that is were not there before.
func (k *identities) readFresh(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	k.inserted = make(map[pipeline.Identity]bool, len(k.ids))
	var id pipeline.Identity
	_, err = pgx.ForEachRow(rows, []any{&id.Source, &id.ID, &id.Session}, func() error {
		k.inserted[id] = true
		return nil
	})
	return err
}

// claim reports whether the inbox has nothing against e, which is not below the
// position. Of entries with one key the first claims it. (Not the first of all
// entries: that may lie below the position as a dead letter, whose redrive in the
// same batch is no repetition.)
func (k *identities) claim(e pipeline.Entry) bool {
	if e.Identity == nil || e.Letter != nil {
		return true
	}
	fresh := k.inserted[*e.Identity]
	delete(k.inserted, *e.Identity)
	return fresh
}

// runEffect runs the effect for the fresh entries that are no letters.
func runEffect(ctx context.Context, tx effectTx, w pipeline.Work, verdicts []pipeline.Verdict) error {
	fresh := make([]int, 0, len(w.Entries))
	for i, e := range w.Entries {
		if e.Letter == nil && verdicts[i] == pipeline.Fresh {
			fresh = append(fresh, i)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	err := w.Effect(ctx, tx, fresh)
	if err != nil && tx.Conn().IsClosed() {
		// The connection broke under the handler, or a statement had to be cut off
		// at the attempt's limit, which closes it too. Whatever the handler made of
		// that, the record is not to blame.
		return pipeline.Infrastructure(err)
	}
	return err
}
