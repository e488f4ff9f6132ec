package deadletter

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Status is where a letter stands.
type Status string

// The statuses.
const (
	// Open: nobody has decided about it.
	Open Status = "OPEN"
	// Redriven: the record was given to its consumer again. If that fails too, there
	// is another letter; if it succeeds, nobody tells.
	Redriven Status = "REDRIVEN"
	// Resolved: what the record was to bring about was brought about otherwise. It is
	// set by hand, in SQL.
	Resolved Status = "RESOLVED"
	// Discarded: somebody decided that the record is not needed.
	Discarded Status = "DISCARDED"
)

// Statuses returns all statuses. The caller may change the slice.
func Statuses() []Status { return []Status{Open, Redriven, Resolved, Discarded} }

// Valid reports whether s is one of Statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses(), s) }

// Filter selects letters. Fields that are empty select all.
type Filter struct {
	Statuses []Status
	// Topic is the name at the broker of the topic that the record lay in.
	Topic, Consumer, EventType string
	// Class is "message" or "handler".
	Class, Fingerprint string
	// Key is that of the record. Nil selects all.
	Key []byte
	// Heads selects letters behind which their key waits in a lane.
	Heads bool
	// FailedAfter and FailedBefore bound the last failure, both exclusive.
	FailedAfter, FailedBefore time.Time
}

// query gathers conditions and their arguments.
type query struct {
	conditions []string
	args       []any
}

// where adds a condition; each %s stands for one argument.
func (q *query) where(condition string, args ...any) {
	places := make([]any, len(args))
	for i, arg := range args {
		q.args = append(q.args, arg)
		places[i] = fmt.Sprintf("$%d", len(q.args))
	}
	q.conditions = append(q.conditions, fmt.Sprintf(condition, places...))
}

func (q *query) equal(column, value string) {
	if value != "" {
		q.where(column+" = %s", value)
	}
}

// clause returns the conditions as a WHERE clause.
func (q *query) clause() string {
	if len(q.conditions) == 0 {
		return ""
	}
	return "\nWHERE " + strings.Join(q.conditions, "\n  AND ")
}

func (f Filter) query() *query {
	q := &query{}
	switch len(f.Statuses) {
	case 0:
	case 1: // lets an index serve the order too
		q.equal("status", string(f.Statuses[0]))
	default:
		q.where("status = ANY(%s)", f.Statuses)
	}
	q.equal("topic", f.Topic)
	q.equal("consumer", f.Consumer)
	q.equal("event_type", f.EventType)
	q.equal("class", f.Class)
	q.equal("fingerprint", f.Fingerprint)
	if f.Key != nil {
		q.where("key = %s", f.Key)
	}
	if f.Heads {
		q.where("id IN (SELECT head FROM parked_lanes)")
	}
	if !f.FailedAfter.IsZero() {
		q.where("last_failed_at > %s", f.FailedAfter)
	}
	if !f.FailedBefore.IsZero() {
		q.where("last_failed_at < %s", f.FailedBefore)
	}
	return q
}

// ErrPageToken reports a page token that is none, or belongs to another filter.
var ErrPageToken = errors.New("the page token is not one of this list")

// Of a token: microseconds of the last failure, the id, and a sum of the filter.
const (
	sumBytes   = 8
	tokenBytes = 8 + 16 + sumBytes
)

func (f Filter) sum() []byte {
	f.Statuses = slices.Clone(f.Statuses)
	slices.Sort(f.Statuses)
	text, _ := json.Marshal(f) // strings, bytes and times that came from a query
	sum := sha256.Sum256(text)
	return sum[:sumBytes]
}

func newToken(at time.Time, id uuid.UUID, f Filter) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, tokenBytes), uint64(at.UnixMicro()))
	b = append(append(b, id[:]...), f.sum()...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(token string, f Filter) (time.Time, uuid.UUID, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != tokenBytes || !slices.Equal(b[24:], f.sum()) {
		return time.Time{}, uuid.Nil, ErrPageToken
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC()
	if y := at.Year(); y < 1 || y > 9999 {
		return time.Time{}, uuid.Nil, ErrPageToken
	}
	return at, uuid.UUID(b[8:24]), nil
}
