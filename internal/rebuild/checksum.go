package rebuild

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MaxListed is how many differences a comparison lists; it counts all.
const MaxListed = 1000

const (
	// rowsPerBucket is how many rows share a checksum, about: where one differs, so many
	// are looked at.
	rowsPerBucket = 128
	maxBuckets    = 1 << 16
	// maxShown is how much of a value a difference shows.
	maxShown = 1000
	// detailsAtOnce is how many rows that differ are fetched whole at once.
	detailsAtOnce = 100
)

// sums are the checksums of a table: rows and their hashes by bucket.
type sums map[int32]sum

type sum struct{ rows, hash int64 }

// comparison is that of one table with its shadow.
type comparison struct {
	table       Table
	key, values string // expressions: the key and the compared columns, as texts
	buckets     int64
	live, built sums
}

// plan is the comparisons of all tables.
type plan []*comparison

// Columns of arrival depend on when an event came, and derived ones on others.
const comparedSQL = `
SELECT attname FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attname NOT IN ('created_at', 'updated_at')
ORDER BY attname`

// plan finds out what to compare.
func (r *run) plan(ctx context.Context, snapshot pgx.Tx) (plan, error) {
	var p plan
	for _, t := range r.model.Tables {
		columns, err := texts(ctx, snapshot, comparedSQL, quote(t.Name))
		if err != nil {
			return nil, fmt.Errorf("look up the columns of %s: %w", t.Name, err)
		}
		var rows int64
		if err := snapshot.QueryRow(ctx, `SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = $1::regclass`, quote(shadowOf(t.Name))).Scan(&rows); err != nil {
			return nil, fmt.Errorf("look up the size of %s: %w", t.Name, err)
		}
		c := &comparison{table: t, key: record(t.Key), values: record(columns), buckets: 1}
		if rows > rowsPerBucket {
			c.buckets = min(int64(maxBuckets), int64(1)<<bits.Len64(uint64(rows/rowsPerBucket)))
		}
		p = append(p, c)
	}
	return p, nil
}

// record is an expression for columns together, as a text.
func record(columns []string) string {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = quote(c)
	}
	return "ROW(" + strings.Join(quoted, ", ") + ")::text"
}

func (c *comparison) bucket() string {
	return fmt.Sprintf("(hashtextextended(%s, 0) & %d)::integer", c.key, c.buckets-1)
}

// sum computes the checksums of the tables, or of their shadows.
func (p plan) sum(ctx context.Context, db Querier, live bool) error {
	for _, c := range p {
		name, into := shadowOf(c.table.Name), &c.built
		if live {
			name, into = c.table.Name, &c.live
		}
		// Keys are unique, so that no two rows cancel each other out.
		sql := fmt.Sprintf("SELECT %s, count(*), bit_xor(hashtextextended(%s, 1)) FROM %s GROUP BY 1", c.bucket(), c.values, quote(name))
		rows, err := db.Query(ctx, sql)
		if err == nil {
			*into = make(sums)
			var bucket int32
			var s sum
			_, err = pgx.ForEachRow(rows, []any{&bucket, &s.rows, &s.hash}, func() error {
				(*into)[bucket] = s
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("compute the checksums of %s: %w", name, err)
		}
	}
	return nil
}

func (s sums) rows() (n int64) {
	for _, b := range s {
		n += b.rows
	}
	return n
}

// differing returns the buckets whose checksums differ.
func (c *comparison) differing() []int32 {
	var list []int32
	for b, s := range c.live {
		if c.built[b] != s {
			list = append(list, b)
		}
	}
	for b := range c.built {
		if _, both := c.live[b]; !both {
			list = append(list, b)
		}
	}
	slices.Sort(list)
	return list
}

// compare compares the rows of the buckets that differ, table by table.
func (p plan) compare(ctx context.Context, live, built Querier, f *findings) error {
	for _, c := range p {
		f.rows += c.live.rows()
		f.built += c.built.rows()
		buckets := c.differing()
		if len(buckets) == 0 {
			continue
		}
		if err := c.compareRows(ctx, live, built, buckets, f); err != nil {
			return fmt.Errorf("compare the rows of %s: %w", c.table.Name, err)
		}
	}
	return nil
}

// place is a row: its key, where it lies, and the hash of its values.
type place struct {
	key, ctid string
	hash      int64
}

// pair is a row that differs: either side is empty where there is none.
type pair struct{ live, built place }

// compareRows walks through the rows of the buckets on both sides in the order of
// their keys.
func (c *comparison) compareRows(ctx context.Context, live, built Querier, buckets []int32, f *findings) error {
	left, err := c.open(ctx, live, c.table.Name, buckets)
	if err != nil {
		return err
	}
	defer left.rows.Close()
	right, err := c.open(ctx, built, shadowOf(c.table.Name), buckets)
	if err != nil {
		return err
	}
	defer right.rows.Close()
	var pairs []pair
	note := func(p pair, count *int64) {
		if *count++; len(pairs)+len(f.listed) < MaxListed {
			pairs = append(pairs, p)
		}
	}
	for left.ok || right.ok {
		switch {
		case !right.ok || left.ok && left.at.key < right.at.key:
			note(pair{live: left.at}, &f.surplus)
			left.next()
		case !left.ok || right.at.key < left.at.key:
			note(pair{built: right.at}, &f.missing)
			right.next()
		default:
			if left.at.hash != right.at.hash {
				note(pair{left.at, right.at}, &f.different)
			}
			left.next()
			right.next()
		}
	}
	if err := left.rows.Err(); err != nil {
		return err
	}
	if err := right.rows.Err(); err != nil {
		return err
	}
	for part := range slices.Chunk(pairs, detailsAtOnce) {
		if err := c.detail(ctx, live, built, part, f); err != nil {
			return err
		}
	}
	return nil
}

// side is one side of the walk.
type side struct {
	rows pgx.Rows
	at   place
	ok   bool
}

func (s *side) next() {
	s.ok = s.rows.Next() && s.rows.Scan(&s.at.key, &s.at.ctid, &s.at.hash) == nil // Err tells
}

func (c *comparison) open(ctx context.Context, db Querier, table string, buckets []int32) (*side, error) {
	rows, err := db.Query(ctx, fmt.Sprintf(`SELECT %s COLLATE "C", ctid::text, hashtextextended(%s, 1) FROM %s WHERE %s = ANY($1) ORDER BY 1`,
		c.key, c.values, quote(table), c.bucket()), buckets)
	if err != nil {
		return nil, err
	}
	s := &side{rows: rows}
	s.next()
	return s, nil
}

// detail fetches rows that differ and lists in what.
func (c *comparison) detail(ctx context.Context, live, built Querier, pairs []pair, f *findings) error {
	before, err := c.fetch(ctx, live, c.table.Name, pairs, func(p pair) string { return p.live.ctid })
	if err != nil {
		return err
	}
	after, err := c.fetch(ctx, built, shadowOf(c.table.Name), pairs, func(p pair) string { return p.built.ctid })
	if err != nil {
		return err
	}
	for _, p := range pairs {
		d := Difference{Table: c.table.Name, Kind: Different}
		has, makes := before[p.live.ctid], after[p.built.ctid]
		switch {
		case p.built.ctid == "":
			d.Kind, makes = Surplus, nil
		case p.live.ctid == "":
			d.Kind, has = Missing, nil
		}
		if d.Key, err = c.keyOf(has, makes); err != nil {
			return err
		}
		columns := map[string]map[string]json.RawMessage{}
		if d.Kind == Different {
			for name, value := range has {
				if name != "created_at" && name != "updated_at" && !bytes.Equal(value, makes[name]) {
					columns[name] = map[string]json.RawMessage{"table": shown(value), "history": shown(makes[name])}
				}
			}
		}
		if d.Columns, err = json.Marshal(columns); err != nil {
			return err
		}
		f.listed = append(f.listed, d)
	}
	return nil
}

func (c *comparison) keyOf(sides ...map[string]json.RawMessage) (json.RawMessage, error) {
	key := map[string]json.RawMessage{}
	for _, row := range sides {
		for _, name := range c.table.Key {
			if value, ok := row[name]; ok {
				key[name] = value
			}
		}
	}
	return json.Marshal(key)
}

// fetch returns whole rows by where they lie.
func (c *comparison) fetch(ctx context.Context, db Querier, table string, pairs []pair, ctid func(pair) string) (map[string]map[string]json.RawMessage, error) {
	var wanted []string
	for _, p := range pairs {
		if at := ctid(p); at != "" {
			wanted = append(wanted, at)
		}
	}
	rows, err := db.Query(ctx, `SELECT ctid::text, to_jsonb(t) FROM `+quote(table)+` AS t WHERE ctid = ANY($1::text[]::tid[])`, wanted)
	if err != nil {
		return nil, err
	}
	found := make(map[string]map[string]json.RawMessage, len(wanted))
	var at string
	var document []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &document}, func() error {
		row := map[string]json.RawMessage{}
		found[at] = row
		return json.Unmarshal(document, &row)
	})
	return found, err
}

// shown is a value as a difference shows it: what is long is cut.
func shown(value json.RawMessage) json.RawMessage {
	if len(value) <= maxShown {
		return value
	}
	text, err := json.Marshal(strings.ToValidUTF8(string(value[:maxShown]), "") + " ...")
	if err != nil {
		return nil
	}
	return text
}
