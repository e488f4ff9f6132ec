package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/parking"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

var _ pipeline.LaneStore = (*Store)(nil)

// ClaimLane implements pipeline.LaneStore.
func (s *Store) ClaimLane(ctx context.Context, groups []string, lease time.Duration) (pipeline.Lane, bool, error) {
	return parking.Claim(ctx, s.db, groups, lease)
}

// KeepLane implements pipeline.LaneStore.
func (s *Store) KeepLane(ctx context.Context, lane pipeline.Lane, lease time.Duration) error {
	return parking.Keep(ctx, s.db, lane, lease)
}

// LaneEvents implements pipeline.LaneStore.
func (s *Store) LaneEvents(ctx context.Context, lane pipeline.Lane, limit int) ([]topics.Record, error) {
	return parking.Next(ctx, s.db, lane, limit)
}

// CloseLane implements pipeline.LaneStore.
func (s *Store) CloseLane(ctx context.Context, lane pipeline.Lane) (bool, error) {
	return parking.Close(ctx, s.db, lane)
}

// LeaveLane implements pipeline.LaneStore.
func (s *Store) LeaveLane(ctx context.Context, lane pipeline.Lane, cause error, wait time.Duration) error {
	return parking.Leave(ctx, s.db, lane, cause, wait)
}

// ErrParkedFull reports that as many events wait behind dead letters as may. The
// partition stalls until letters are redriven or discarded and their lanes drained.
var ErrParkedFull = errors.New("too many events wait behind dead letters")

// parked says where the entries of one piece of work go that wait.
type parked struct {
	lanes map[parking.Hash]parking.Open
	// heads are the letters that open lanes.
	heads []*middleware.Letter
	// waiting are the entries to be parked, by index.
	waiting []int
}

// keyOf returns the key by which an entry is ordered, and whether it has one.
func keyOf(e pipeline.Entry) (parking.Hash, bool) {
	if e.Record == nil || e.Record.Key == nil {
		return parking.Hash{}, false
	}
	return parking.HashOf(e.Record.Key), true
}

// mayPark reports whether entries may have to wait for a letter among them, which
// is only known when the position is.
func mayPark(w pipeline.Work) bool {
	if !w.Parking.Open {
		return false
	}
	for _, e := range w.Entries {
		if e.Letter != nil {
			return true
		}
	}
	return false
}

// sort finds out which entries wait: those whose lane is open, and those behind a
// letter that opens one. It marks them Parked. Entries below the position are
// marked as Repeated already.
func (p *parked) sort(ctx context.Context, tx pgx.Tx, w pipeline.Work, verdicts []pipeline.Verdict) error {
	var hashes []parking.Hash
	for i, e := range w.Entries {
		if hash, ok := keyOf(e); ok && verdicts[i] == pipeline.Fresh {
			hashes = append(hashes, hash)
		}
	}
	var err error
	if p.lanes, err = parking.Find(ctx, tx, w.Partition, hashes); err != nil {
		return err
	}
	opening := make(map[parking.Hash]bool)
	for i, e := range w.Entries {
		hash, ok := keyOf(e)
		if !ok || verdicts[i] != pipeline.Fresh {
			continue
		}
		lane, open := p.lanes[hash]
		switch {
		case open && e.Offset == lane.Reached:
			// The position was moved back; the head waits in its lane.
			verdicts[i] = pipeline.Repeated
		case open && e.Offset > lane.Reached, opening[hash]:
			verdicts[i] = pipeline.Parked
			p.waiting = append(p.waiting, i)
		case !open && e.Letter != nil && w.Parking.Open:
			opening[hash] = true
			p.heads = append(p.heads, e.Letter)
		}
	}
	return p.limit(ctx, tx, w)
}

// limit refuses to park more than the consumer allows.
func (p *parked) limit(ctx context.Context, tx pgx.Tx, w pipeline.Work) error {
	if len(p.waiting) == 0 || w.Parking.PerKey == 0 && w.Parking.Total == 0 {
		return nil
	}
	waiting, total, err := parking.Counts(ctx, tx, w.Partition)
	if err != nil {
		return err
	}
	more := make(map[parking.Hash]int)
	for _, i := range p.waiting {
		hash, _ := keyOf(w.Entries[i])
		if more[hash]++; waiting[p.lanes[hash].ID]+more[hash] > w.Parking.PerKey && w.Parking.PerKey > 0 {
			return pipeline.Infrastructure(fmt.Errorf("park offset %d: %d events of key %q wait, at most %d may: %w",
				w.Entries[i].Offset, waiting[p.lanes[hash].ID], shown(w.Entries[i].Record.Key), w.Parking.PerKey, ErrParkedFull))
		}
	}
	if w.Parking.Total > 0 && total+len(p.waiting) > w.Parking.Total {
		return pipeline.Infrastructure(fmt.Errorf("park offset %d: %d events of the partition wait, at most %d may: %w",
			w.Entries[p.waiting[0]].Offset, total, w.Parking.Total, ErrParkedFull))
	}
	return nil
}

// shown is the beginning of a key, for reading.
func shown(key []byte) []byte { return key[:min(len(key), maxKeyInID)] }

// park opens the lanes of the letters, which are filed by now, and writes what
// waits.
func (p *parked) park(ctx context.Context, tx pgx.Tx, w pipeline.Work) error {
	opened, err := parking.Begin(ctx, tx, w.Partition, p.heads)
	if err != nil {
		return err
	}
	waiting := make([]parking.Waiting, len(p.waiting))
	for n, i := range p.waiting {
		hash, _ := keyOf(w.Entries[i])
		lane, ok := p.lanes[hash]
		if !ok {
			lane, ok = opened[hash]
		}
		if !ok {
			return fmt.Errorf("park offset %d: its lane was not opened", w.Entries[i].Offset)
		}
		waiting[n] = parking.Waiting{Lane: lane.ID, Record: w.Entries[i].Record}
	}
	return parking.Park(ctx, tx, waiting)
}

// insertSorted is insertProcessed for entries of which the position has nothing more
// to say. What is said there about generations holds here.
const insertSorted = `
INSERT INTO processed_events (consumer, source, event_id, session, generation)
SELECT $1, e.source, e.event_id, e.session, g.number
FROM (SELECT max(number) AS number FROM processed_generations) AS g,
     unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS e (source, event_id, session, n)
WHERE NOT EXISTS (SELECT FROM processed_events p
                  WHERE p.consumer = $1 AND p.source = e.source AND p.event_id = e.event_id AND p.session = e.session
                    AND p.generation < g.number OFFSET 0)
ORDER BY e.n
ON CONFLICT DO NOTHING
RETURNING source, event_id, session`

// applyLane settles entries that waited in a lane: up to the first letter, which
// becomes the head of the lane. What is behind it goes on waiting. Letters whose
// redriven records are among what is settled are resolved. Entry.With does not
// matter here: it belongs to the record at which the partition is stalled.
func applyLane(ctx context.Context, tx effectTx, w pipeline.Work) ([]pipeline.Verdict, error) {
	next, failed, letter := w.Next, int64(-1), len(w.Entries)
	for i, e := range w.Entries {
		if e.Letter != nil {
			letter, failed, next = i, e.Offset, e.Offset+1
			break
		}
	}
	verdicts, there, err := enterLane(ctx, tx, w, next)
	if err != nil || there == nil {
		return verdicts, err
	}
	for i := range verdicts {
		switch _, present := slices.BinarySearch(there, w.Entries[i].Offset); {
		case i > letter:
			verdicts[i] = pipeline.Parked
		case !present:
			verdicts[i] = pipeline.Repeated
		}
	}
	if letter < len(w.Entries) && verdicts[letter] == pipeline.Repeated {
		return nil, fmt.Errorf("lane %d: offset %d has left it: %w", w.Lane, failed, pipeline.ErrFenced)
	}
	redriven := redrivenBy(w, verdicts)
	if err := insertFresh(ctx, tx, w, verdicts); err != nil {
		return nil, err
	}
	if err := runEffect(ctx, tx, w, verdicts); err != nil {
		return nil, err
	}
	err = fileLetters(ctx, tx, w, verdicts)
	if err == nil {
		err = parking.Settle(ctx, tx, w.Lane, there, next, failed)
	}
	if err == nil && len(redriven) > 0 {
		err = deadletter.Resolve(ctx, tx, w.Consumer, redriven)
	}
	if err != nil {
		return nil, pipeline.Infrastructure(err)
	}
	return verdicts, nil
}

// enterLane locks the lane and returns the offsets below next that are there. They
// are nil, and all entries Parked, when it is not their turn: the head is an OPEN
// letter, or it was redriven since the entries were read and lies before them.
func enterLane(ctx context.Context, tx effectTx, w pipeline.Work, next int64) ([]pipeline.Verdict, []int64, error) {
	verdicts := make([]pipeline.Verdict, len(w.Entries))
	blocked, err := parking.Enter(ctx, tx, w.Lane, w.Epoch)
	if err != nil {
		return nil, nil, err
	}
	there, err := parking.Below(ctx, tx, w.Lane, next)
	if err != nil {
		return nil, nil, err
	}
	if blocked || len(there) > 0 && there[0] < w.From {
		for i := range verdicts {
			verdicts[i] = pipeline.Parked
		}
		return verdicts, nil, nil
	}
	if there == nil {
		there = []int64{}
	}
	return verdicts, there, nil
}

// insertFresh enters into the inbox what is Fresh so far, and marks as Repeated what
// was there before.
func insertFresh(ctx context.Context, tx pgx.Tx, w pipeline.Work, verdicts []pipeline.Verdict) error {
	fresh := make([]pipeline.Entry, 0, len(w.Entries))
	for i, e := range w.Entries {
		if verdicts[i] == pipeline.Fresh {
			fresh = append(fresh, e)
		}
	}
	keys := newIdentities(fresh)
	if keys.any() {
		batch := &pgx.Batch{}
		batch.Queue(insertSorted, w.Consumer, keys.sources, keys.ids, keys.sessions)
		results := tx.SendBatch(ctx, batch)
		err := keys.readFresh(results)
		if err = errors.Join(err, results.Close()); err != nil {
			return fmt.Errorf("enter inbox: %w", err)
		}
	}
	keys.sift(w.Entries, verdicts)
	return nil
}
