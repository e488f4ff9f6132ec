package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/trigger"
)

// Bounds of what is reported.
const (
	maxTextBytes = 2048
	maxKeyBytes  = 1024
	maxNotes     = 20
)

// memberRow is a row of trigger_members as it is sent.
type memberRow struct {
	UID        string            `json:"uid"`
	Member     int               `json:"member"`
	Trigger    string            `json:"trigger"`
	AlertAfter float64           `json:"alert_after"`
	Lease      string            `json:"lease"`
	Token      int64             `json:"token"`
	Revision   int64             `json:"revision"`
	State      trigger.State     `json:"state"`
	Cause      *trigger.Cause    `json:"cause"`
	Since      time.Time         `json:"since"`
	NextTry    *time.Time        `json:"next_try"`
	Attempts   int               `json:"attempts"`
	Notes      []trigger.Cause   `json:"notes"`
	Effective  []trigger.Setting `json:"effective"`
}

// partitionRow is a row of trigger_partitions as it is sent.
type partitionRow struct {
	UID       string         `json:"uid"`
	Topic     string         `json:"topic"`
	Partition int32          `json:"partition"`
	TopicID   string         `json:"topic_id"`
	Member    int            `json:"member"`
	Lease     string         `json:"lease"`
	Token     int64          `json:"token"`
	State     trigger.State  `json:"state"`
	Cause     *trigger.Cause `json:"cause"`
	Position  int64          `json:"position"`
	Key       []byte         `json:"key"`
	Committed int64          `json:"committed"`
	End       int64          `json:"log_end"`
	Since     time.Time      `json:"since"`
	NextTry   *time.Time     `json:"next_try"`
	Attempts  int            `json:"attempts"`
}

// releasedRow names a row of trigger_partitions that a member has given up.
type releasedRow struct {
	UID       string `json:"uid"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Member    int    `json:"member"`
	Token     int64  `json:"token"`
}

func newMemberRow(m Member, r trigger.MemberReport) memberRow {
	row := memberRow{
		UID: m.Trigger.UID, Member: m.Number, Trigger: m.Trigger.ID, AlertAfter: m.AlertAfter.Seconds(),
		Lease: m.Lease.Name(), Token: m.Lease.Token(), Revision: m.Trigger.Revision,
		State: written(r.State), Cause: clean(r.Cause), Since: r.Since.UTC(), NextTry: moment(r.NextTry), Attempts: r.Attempts,
		Effective: r.Effective,
	}
	for _, note := range r.Notes[:min(len(r.Notes), maxNotes)] {
		row.Notes = append(row.Notes, *clean(&note))
	}
	return row
}

func newPartitionRow(m Member, p trigger.PartitionReport) partitionRow {
	return partitionRow{
		UID: m.Trigger.UID, Topic: p.Topic, Partition: p.Partition, TopicID: storable(p.TopicID), Member: m.Number, Lease: m.Lease.Name(), Token: m.Lease.Token(),
		State: written(p.State), Cause: clean(p.Cause), Position: p.Offset, Key: p.Key[:min(len(p.Key), maxKeyBytes)],
		Committed: p.Committed, End: p.End, Since: p.Since.UTC(), NextTry: moment(p.NextTry), Attempts: p.Attempts,
	}
}

// written is a state as the tables have it: the others are for the reader to find.
func written(s trigger.State) trigger.State {
	switch s {
	case trigger.StateRunning, trigger.StateError:
		return s
	default:
		return trigger.StateStarting
	}
}

// clean returns a cause that can be stored and shown to everybody.
func clean(c *trigger.Cause) *trigger.Cause {
	if c == nil {
		return nil
	}
	return &trigger.Cause{Code: storable(c.Code), Message: storable(secret.Redact(c.Message)), Hint: storable(c.Hint)}
}

// storable returns text as PostgreSQL can keep it, cut between characters.
func storable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= maxTextBytes {
		return text
	}
	limit := maxTextBytes
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// encoded is a row in JSON, which tells whether it has changed.
type encoded []byte

func encode(row any) (encoded, error) {
	text, err := json.Marshal(row)
	// PostgreSQL keeps no such character, and one value must not hold up all others.
	return bytes.ReplaceAll(text, []byte(`\u0000`), []byte(`\ufffd`)), err
}

func (e encoded) same(o encoded) bool { return bytes.Equal(e, o) }

// array returns rows as one JSON array.
func array(rows []encoded) []byte {
	out := []byte{'['}
	for i, row := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, row...)
	}
	return append(out, ']')
}
