package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/pipeline"
)

// Apply implements pipeline.Store.
func (s *Store) Apply(ctx context.Context, w pipeline.Work) ([]pipeline.Verdict, error) {
	var verdicts []pipeline.Verdict
	var written outbox.Written
	err := postgres.InTx(outbox.Gathering(ctx, &written), s.db, func(ctx context.Context, tx pgx.Tx) error {
		written.Reset()
		var err error
		etx := effectTx{Tx: tx}
		if w.Lane != 0 {
			verdicts, err = applyLane(ctx, etx, w)
		} else {
			verdicts, err = applyIn(ctx, etx, w)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if written.Any() && !s.relay.Hand(&written) {
		s.wake()
	}
	return verdicts, nil
}

func applyIn(ctx context.Context, tx effectTx, w pipeline.Work) ([]pipeline.Verdict, error) {
	verdicts, parked, redriven, err := enter(ctx, tx, w)
	if err != nil {
		return nil, err
	}
	if err := runEffect(ctx, tx, w, verdicts); err != nil {
		return nil, err
	}
	if err := fileLetters(ctx, tx, w, verdicts); err != nil {
		return nil, pipeline.Infrastructure(fmt.Errorf("file dead letters: %w", err))
	}
	if parked != nil {
		if err := parked.park(ctx, tx, w); err != nil {
			return nil, pipeline.Infrastructure(err)
		}
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
SELECT next_offset, owner_epoch, lanes FROM consumer_offsets
WHERE consumer_group = $1 AND topic_id = $2 AND partition = $3
FOR NO KEY UPDATE`

// Below the position nothing is inserted: there may be a dead letter, whose
// redrive must not find an inbox row, and where lanes are open it must first be known
// what waits in them (see insertSorted). The statement runs after lockPosition, so it
// sees the row that is locked.
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
  AND e.at >= o.next_offset AND o.lanes = 0
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
// the position, in one round trip as long as no lane is open. That the position is
// moved before the effect is known makes no difference: both are seen by nobody
// before the commit.
//
// It also returns the dead letters whose redriven records are processed now, or
// were processed under another offset. A record below the position tells nothing:
// it may have ended as a letter itself. One that is parked is not processed yet.
func enter(ctx context.Context, tx pgx.Tx, w pipeline.Work) (verdicts []pipeline.Verdict, p *parked, redriven []string, err error) {
	group, topicID, partition := w.Partition.Group, uuid.UUID(w.Partition.TopicID), w.Partition.Partition
	batch := &pgx.Batch{}
	batch.Queue(lockPosition, group, topicID, partition)
	keys, sorted := newIdentities(w.Entries), !mayPark(w)
	if sorted && keys.any() {
		batch.Queue(insertProcessed, group, topicID, partition, w.Consumer, w.Epoch,
			keys.offsets, keys.sources, keys.ids, keys.sessions)
	}
	batch.Queue(movePosition, group, topicID, partition, w.Next, w.Epoch)
	results := tx.SendBatch(ctx, batch)
	next, lanes, err := readPosition(results, w.Epoch)
	if err == nil && sorted && keys.any() {
		err = keys.readFresh(results)
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return nil, nil, nil, fmt.Errorf("enter inbox: %w", err)
	}
	verdicts = make([]pipeline.Verdict, len(w.Entries))
	for i, e := range w.Entries {
		if e.Offset < next {
			verdicts[i] = pipeline.Repeated
		}
	}
	if lanes > 0 || !sorted {
		p = &parked{}
		if err := p.sort(ctx, tx, w, verdicts); err != nil {
			return nil, nil, nil, fmt.Errorf("enter inbox: %w", err)
		}
	}
	redriven = redrivenBy(w, verdicts)
	if p == nil {
		keys.sift(w.Entries, verdicts)
		return verdicts, nil, redriven, nil
	}
	if err := insertFresh(ctx, tx, w, verdicts); err != nil {
		return nil, nil, nil, err
	}
	return verdicts, p, redriven, nil
}

// redrivenBy returns the dead letters whose redriven records are among the entries
// that are Fresh as far as the position and the lanes go.
func redrivenBy(w pipeline.Work, verdicts []pipeline.Verdict) []string {
	var letters []string
	for i, e := range w.Entries {
		if e.RedriveOf != "" && e.Letter == nil && verdicts[i] == pipeline.Fresh {
			letters = append(letters, e.RedriveOf)
		}
	}
	return letters
}

func readPosition(results pgx.BatchResults, epoch int64) (next int64, lanes int, err error) {
	var owner int64
	err = results.QueryRow().Scan(&next, &owner, &lanes)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, 0, fmt.Errorf("the partition was never taken: %w", pipeline.ErrFenced)
	case err != nil:
		return 0, 0, err
	case owner != epoch:
		return 0, 0, fmt.Errorf("epoch %d, the owner's is %d: %w", epoch, owner, pipeline.ErrFenced)
	}
	return next, lanes, nil
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

// sift marks as Repeated what the inbox has something against, of the entries that
// are Fresh so far.
func (k *identities) sift(entries []pipeline.Entry, verdicts []pipeline.Verdict) {
	for i, e := range entries {
		if verdicts[i] == pipeline.Fresh && !k.claim(e) {
			verdicts[i] = pipeline.Repeated
		}
	}
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
