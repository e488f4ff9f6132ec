package query

import "time"

// Aggregate asks for numbers about the rows that a filter selects.
type Aggregate struct {
	// Filter is nil for everything.
	Filter Filter
	// GroupBy are up to two groupable fields; empty makes one group of all rows.
	GroupBy []string
	// Bucket, if set, divides each group by time too.
	Bucket *Bucket
	// Duration is one of Schema.Durations; empty computes none.
	Duration string
	// Limit is how many groups are wanted, 1 to Limits.Groups; 0 is 100. The largest
	// come first, or with a Bucket the earliest.
	Limit int
}

// Bucket divides rows by a field of kind Time. Rows without a value have none.
type Bucket struct {
	Field string
	// Width is at least one second. Buckets begin at multiples of it since
	// 2000-01-01T00:00:00Z, which was a Saturday: hours and days are those of UTC.
	Width time.Duration
}

// Statistics is the answer to an Aggregate.
type Statistics struct {
	Groups []Group
	// Truncated: there are more groups than Limit.
	Truncated bool
}

// Group is one group of rows.
type Group struct {
	// Keys are the values of Aggregate.GroupBy, in its order, as text; nil for rows
	// without a value.
	Keys []*string
	// Bucket is where the bucket begins; nil without buckets, and for rows without a
	// value.
	Bucket *time.Time
	Count  int64
	// Durations is nil when none was asked for or no row of the group has one.
	Durations *Durations
}

// Durations describes how long the rows of a group took, those that are done.
type Durations struct {
	// Count is how many rows have a duration.
	Count         int64
	Min, Avg, Max time.Duration
	// P50 and P95 are within 1 % of the exact percentile: they come from a histogram
	// with logarithmic classes, so that no million durations need to be sorted.
	P50, P95 time.Duration
}
