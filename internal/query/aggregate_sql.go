package query

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	groupsDefault = 100
	bucketMin     = time.Second
	bucketMax     = 366 * 24 * time.Hour
	// classesPerE is how many classes of the histogram of durations there are for each
	// factor of e: neighbours differ by 1 %.
	classesPerE = 100
)

// Aggregate returns numbers about the rows that a filter selects. Nothing is
// precomputed: it reads every row that the filter selects, in an index where one has
// all that is asked for.
func (c Collection[R]) Aggregate(ctx context.Context, scope Scope, a Aggregate) (Statistics, error) {
	a.Limit = cmp.Or(a.Limit, groupsDefault)
	if err := c.checkAggregate(a); err != nil {
		return Statistics{}, err
	}
	st := &statement{}
	where, err := c.where(st, scope, a.Filter)
	if err != nil {
		return Statistics{}, err
	}
	sql := aggregateSQL(&c.schema.Schema, st, a, where)
	var out Statistics
	err = c.store.run(ctx, sql, st.args, func(rows pgx.Rows) error {
		g, err := scanGroup(rows, a)
		if len(out.Groups) == a.Limit {
			out.Truncated = true
			return err
		}
		out.Groups = append(out.Groups, g)
		return err
	})
	if err != nil {
		return Statistics{}, fmt.Errorf("aggregate %s: %w", c.schema.Name, err)
	}
	return out, nil
}

func (c Collection[R]) checkAggregate(a Aggregate) error {
	limits, s := c.store.limits, &c.schema.Schema
	switch {
	case a.Limit < 0:
		return invalid("", "invalid", "the limit must not be negative")
	case a.Limit > limits.Groups:
		return &LimitError{Limit: "groups", Max: limits.Groups, Got: a.Limit}
	case len(a.GroupBy) > limits.GroupBy:
		return &LimitError{Limit: "group_by", Max: limits.GroupBy, Got: len(a.GroupBy)}
	case a.Duration != "" && !slices.Contains(s.Durations, a.Duration):
		return invalid("", "unknown_field", "%s have no duration %q: use %s", s.Name, clip(a.Duration), strings.Join(s.Durations, ", "))
	}
	for i, name := range a.GroupBy {
		if f, ok := s.Field(name); !ok || !f.Groupable {
			return invalid("", "unknown_field", "%s cannot be grouped by %q: use %s", s.Name, clip(name),
				strings.Join(s.names(func(f Field) bool { return f.Groupable }), ", "))
		}
		if slices.Contains(a.GroupBy[:i], name) {
			return invalid("", "invalid", "groups by %s twice", name)
		}
	}
	if a.Bucket == nil {
		return nil
	}
	if f, ok := s.Field(a.Bucket.Field); !ok || f.Kind != Time {
		return invalid("", "unknown_field", "%s have no time %q: use %s", s.Name, clip(a.Bucket.Field),
			strings.Join(s.names(func(f Field) bool { return f.Kind == Time }), ", "))
	}
	if w := a.Bucket.Width; w < bucketMin || w > bucketMax {
		return invalid("", "invalid", "a bucket must be between %s and %s wide", bucketMin, bucketMax)
	}
	return nil
}

// aggregateSQL returns the statement. Its columns: one per key, the bucket, the count,
// and with durations their number, sum, least and greatest, and the histogram.
func aggregateSQL(s *Schema, st *statement, a Aggregate, where []string) string {
	var inner, keys, shown []string
	add := func(expression, name, show string) {
		inner = append(inner, expression+" AS "+name)
		keys, shown = append(keys, name), append(shown, show)
	}
	for i, field := range a.GroupBy {
		name := "k" + strconv.Itoa(i)
		add(s.columns[field], name, name+"::text")
	}
	order := append([]string{"n DESC"}, keys...)
	if a.Bucket != nil {
		order = append([]string{"bucket"}, order...)
		add("date_bin("+st.arg(a.Bucket.Width)+"::interval, "+s.columns[a.Bucket.Field]+", timestamptz '2000-01-01 00:00:00+00')", "bucket", "bucket")
	} else {
		shown = append(shown, "NULL::timestamptz AS bucket")
	}
	tail := fmt.Sprintf("\nORDER BY %s\nLIMIT %d", strings.Join(order, ", "), a.Limit+1)
	from := "\nFROM " + s.table + whereClause(where)
	if a.Duration == "" {
		return "SELECT " + list(shown, "count(*) AS n") + "\nFROM (SELECT " + list(inner, "1 AS one") + from + ") AS selected" + groupBy(keys) + tail
	}
	// One pass counts the rows of each class, a second one over the few classes sums
	// them up: a percentile needs no sorting of all durations. OFFSET 0 keeps the parts
	// apart, so that each expression is computed once per row, and the planner, which
	// then knows little of how many classes there are, hashes instead of sorting all.
	// A clock that went back makes a negative duration, which counts as 0; the greatest
	// of NULL and 0 would be 0 too, that of NULL and NULL * 0 is not.
	rows := "SELECT " + list(inner, s.duration[a.Duration]+" AS took") + from + "\nOFFSET 0"
	classified := "SELECT " + list(keys, "greatest(took, took * 0) AS took",
		fmt.Sprintf("floor(ln(greatest(took, took * 0 + 1)) * %d)::int AS class", classesPerE)) + "\nFROM (" + rows + ") AS selected\nOFFSET 0"
	classes := "SELECT " + list(keys, "class", "count(*) AS n", "sum(took) AS total", "min(took) AS least", "max(took) AS greatest") +
		"\nFROM (" + classified + ") AS classified" + groupBy(append(slices.Clip(keys), "class"))
	const done = " FILTER (WHERE class IS NOT NULL)"
	return "SELECT " + list(shown, "sum(n)::bigint AS n", "coalesce(sum(n)"+done+", 0)::bigint", "coalesce(sum(total), 0)::float8", "min(least)::float8", "max(greatest)::float8",
		"array_agg(n ORDER BY class)"+done, "array_agg((total / n)::float8 ORDER BY class)"+done) +
		"\nFROM (" + classes + ") AS classes" + groupBy(keys) + tail
}

func list(parts []string, more ...string) string {
	return strings.Join(append(slices.Clip(parts), more...), ", ")
}

func groupBy(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return "\nGROUP BY " + strings.Join(keys, ", ")
}

func scanGroup(rows pgx.Rows, a Aggregate) (Group, error) {
	g := Group{Keys: make([]*string, len(a.GroupBy))}
	dests := make([]any, 0, len(g.Keys)+8)
	for i := range g.Keys {
		dests = append(dests, &g.Keys[i])
	}
	var count *int64 // of an empty table without groups there is no sum
	dests = append(dests, &g.Bucket, &count)
	var (
		done              int64
		total             float64
		least, greatest   *float64
		numbers           []int64
		means             []float64
		withDurations     = a.Duration != ""
		durationsScanners = []any{&done, &total, &least, &greatest, &numbers, &means}
	)
	if withDurations {
		dests = append(dests, durationsScanners...)
	}
	if err := rows.Scan(dests...); err != nil {
		return g, err
	}
	if count != nil {
		g.Count = *count
	}
	if withDurations && done > 0 && least != nil && greatest != nil {
		g.Durations = &Durations{
			Count: done, Min: micros(*least), Avg: micros(total / float64(done)), Max: micros(*greatest),
			P50: percentile(numbers, means, done, 0.5), P95: percentile(numbers, means, done, 0.95),
		}
	}
	return g, nil
}

// percentile returns the mean of the class in which the row of that rank is. It differs
// from the row's own value by less than the width of the class.
func percentile(numbers []int64, means []float64, done int64, part float64) time.Duration {
	rank := int64(math.Ceil(part * float64(done)))
	for i, n := range numbers {
		if rank -= n; rank <= 0 {
			return micros(means[i])
		}
	}
	return 0
}

func micros(n float64) time.Duration {
	const most = float64(math.MaxInt64 / int64(time.Microsecond))
	return time.Duration(math.Round(min(n, most) * float64(time.Microsecond)))
}
