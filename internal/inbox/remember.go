package inbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Key is what an event is known by to a consumer that has no position here: where it
// lies, or what it is. Texts have to be UTF-8 without zero bytes.
type Key struct{ Source, ID string }

// Claim is a key that is to be remembered, with what is made of it, such as
// "execution/<id>".
type Claim struct {
	Key
	Target string
}

// Of two transactions with the same key the second one waits for the first to end, as in
// insertProcessed; what is said there about generations holds here.
const remember = `
INSERT INTO processed_events (consumer, source, event_id, session, generation, target)
SELECT $1, e.source, e.event_id, '', g.number, nullif(e.target, '')
FROM (SELECT max(number) AS number FROM processed_generations) AS g,
     unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS e (source, event_id, target, n)
WHERE NOT EXISTS (SELECT FROM processed_events p
                  WHERE p.consumer = $1 AND p.source = e.source AND p.event_id = e.event_id AND p.session = ''
                    AND p.generation < g.number OFFSET 0)
ORDER BY e.n
ON CONFLICT DO NOTHING
RETURNING source, event_id`

// Remember queues the statement that enters keys into the inbox. fresh is told of each
// that was not there before; of a key that occurs several times the first claim counts.
// The locks of all keys are taken in one order, so that two transactions with the same
// ones do not deadlock, if each calls this once.
func Remember(b *pgx.Batch, consumer string, claims []Claim, fresh func(Key)) {
	if len(claims) == 0 {
		return
	}
	claims = byKey(claims)
	sources, ids, targets := make([]string, len(claims)), make([]string, len(claims)), make([]string, len(claims))
	for i, c := range claims {
		sources[i], ids[i], targets[i] = c.Source, c.ID, c.Target
	}
	b.Queue(remember, consumer, sources, ids, targets).Query(func(rows pgx.Rows) error {
		var k Key
		_, err := pgx.ForEachRow(rows, []any{&k.Source, &k.ID}, func() error {
			fresh(k)
			return nil
		})
		return err
	})
}

// byKey returns claims in the order of their keys, those with the same one in theirs.
func byKey(claims []Claim) []Claim {
	claims = slices.Clone(claims)
	slices.SortStableFunc(claims, func(a, b Claim) int { return compareKeys(a.Key, b.Key) })
	return claims
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.ID, b.ID))
}

// Correct queues what sets the targets of keys that are there. One statement for each
// key is read by the primary key whatever the planner thinks of the sizes.
func Correct(b *pgx.Batch, consumer string, claims []Claim) {
	for _, c := range byKey(claims) {
		b.Queue(`UPDATE processed_events SET target = nullif($4, '')
			WHERE consumer = $1 AND source = $2 AND event_id = $3 AND session = ''`, consumer, c.Source, c.ID, c.Target)
	}
}

// Forget queues what takes back keys of which nothing was made.
func Forget(b *pgx.Batch, consumer string, keys []Key) {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, compareKeys)
	for _, k := range keys {
		b.Queue(`DELETE FROM processed_events
			WHERE consumer = $1 AND source = $2 AND event_id = $3 AND session = ''`, consumer, k.Source, k.ID)
	}
}

// Recall queues the question which keys are known. known is told of each that is, with
// what was made of it; empty: that is not told.
func Recall(b *pgx.Batch, consumer string, keys []Key, known func(k Key, target string)) {
	if len(keys) == 0 {
		return
	}
	sources, ids := columnsOf(keys)
	b.Queue(`
		SELECT p.source, p.event_id, coalesce(p.target, '')
		FROM unnest($2::text[], $3::text[]) AS e (source, event_id), LATERAL (
			SELECT * FROM processed_events p
			WHERE p.consumer = $1 AND p.source = e.source AND p.event_id = e.event_id AND p.session = '' LIMIT 1) AS p`,
		consumer, sources, ids).Query(func(rows pgx.Rows) error {
		var k Key
		var target string
		_, err := pgx.ForEachRow(rows, []any{&k.Source, &k.ID, &target}, func() error {
			known(k, target)
			return nil
		})
		return err
	})
}

func columnsOf(keys []Key) (sources, ids []string) {
	sources, ids = make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		sources[i], ids[i] = k.Source, k.ID
	}
	return sources, ids
}

// batcher is a pool or a transaction.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Known is Recall by itself.
func Known(ctx context.Context, db batcher, consumer string, keys []Key) (map[Key]string, error) {
	found := make(map[Key]string, len(keys))
	b := &pgx.Batch{}
	Recall(b, consumer, keys, func(k Key, target string) { found[k] = target })
	if b.Len() == 0 {
		return found, nil
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("look into the inbox: %w", err)
	}
	return found, nil
}
