package report

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/trigger"
)

// LeaseKind is the kind of the leases of members; see lease.Manager.Spread.
const LeaseKind = "trigger"

// Slot returns the slot of a member: its lease is trigger/<uid>/<member>.
func (s Seat) Slot() lease.Slot {
	return lease.Slot{Name: s.UID + "/" + strconv.Itoa(s.Member), Group: s.UID}
}

// UIDOf returns the uid of the trigger that a slot belongs to.
func UIDOf(slot string) string {
	uid, _, _ := strings.Cut(slot, "/")
	return uid
}

// startsWithin is for how long a trigger that was changed may have no owner without that
// being worth a word.
const startsWithin = 10 * time.Second

// oldAfter is for how long what nobody has any more is shown while the trigger runs.
const oldAfter = time.Minute

// Schedules tells how schedules are doing, by the uid of their trigger; *schedule.Store
// implements it.
type Schedules interface {
	Reports(ctx context.Context, uids []string) (map[string]trigger.ScheduleReport, error)
}

// Hooks tells how a webhook is doing where it is asked: by the server that is asked, without
// a query; *hooks.Hooks implements it.
type Hooks interface {
	Report(t trigger.Stored) trigger.MemberReport
}

// Reader reads how triggers are doing. It is safe for concurrent use.
type Reader struct {
	pool      *pgxpool.Pool
	schedules Schedules
	hooks     Hooks
}

// NewReader returns a reader.
func NewReader(pool *pgxpool.Pool) *Reader { return &Reader{pool: pool} }

// AskSchedules has the reader ask somebody how schedules are doing; without, they are
// starting. Call it before the first use.
func (r *Reader) AskSchedules(s Schedules) { r.schedules = s }

// AskHooks has the reader ask somebody how webhooks are doing; without, they are running.
// Call it before the first use.
func (r *Reader) AskHooks(h Hooks) { r.hooks = h }

const (
	readMembers = `
SELECT m.uid, m.member, m.owner, m.token, m.revision, m.state, m.cause, coalesce(CASE m.state WHEN 'error' THEN m.failing_since END, m.since), m.next_try,
    m.attempts, m.notes, m.effective, m.reported_at
FROM trigger_members m WHERE m.uid = ANY ($1)`

	readPartitions = `
SELECT uid, topic, partition, topic_id, member, token, state, cause, position, key, committed, log_end,
    coalesce(CASE state WHEN 'error' THEN stalled_since END, since), next_try, attempts, reported_at,
    reported_at < clock_timestamp() - make_interval(secs => $2)
FROM trigger_partitions WHERE uid = ANY ($1) ORDER BY uid, topic, partition`

	readLeases = `
SELECT name, owner, token, expires_at, expires_at > clock_timestamp() FROM leases WHERE name = ANY ($1)`

	readNotes = `SELECT uid, notes FROM trigger_notes WHERE uid = ANY ($1)`

	countProcesses = `SELECT count(*), clock_timestamp() FROM lease_members WHERE kind = $1 AND expires_at > clock_timestamp()`
)

// found is what the tables have of some triggers.
type found struct {
	members    map[Seat]memberFound
	partitions map[string][]partitionFound
	leases     map[string]tenure
	notes      map[string][]trigger.Cause
	schedules  map[string]trigger.ScheduleReport
	processes  int
	hooks      Hooks
	now        time.Time
}

type memberFound struct {
	trigger.MemberStatus
	token     int64
	notes     []trigger.Cause
	effective []trigger.Setting
}

type partitionFound struct {
	trigger.PartitionStatus
	token int64
	old   bool // nothing was said for oldAfter
}

type tenure struct {
	owner string
	token int64
	until time.Time
	live  bool
}

// Of returns how triggers are doing, in their order.
func (r *Reader) Of(ctx context.Context, triggers ...trigger.Stored) ([]trigger.Status, error) {
	var uids, names, scheduled []string
	for _, t := range triggers {
		uids = append(uids, t.UID)
		if t.Type == trigger.TypeSchedule && t.IsEnabled() {
			scheduled = append(scheduled, t.UID)
		}
		for n := range Seats(t) {
			names = append(names, lease.SlotLease(LeaseKind, Seat{t.UID, n}.Slot().Name))
		}
	}
	f := &found{members: make(map[Seat]memberFound), partitions: make(map[string][]partitionFound), leases: make(map[string]tenure), notes: make(map[string][]trigger.Cause), hooks: r.hooks}
	batch := &pgx.Batch{}
	batch.Queue(readMembers, uids).Query(f.scanMembers)
	batch.Queue(readPartitions, uids, oldAfter.Seconds()).Query(f.scanPartitions)
	batch.Queue(readLeases, names).Query(f.scanLeases)
	batch.Queue(readNotes, uids).Query(f.scanNotes)
	batch.Queue(countProcesses, LeaseKind).QueryRow(func(row pgx.Row) error { return row.Scan(&f.processes, &f.now) })
	if err := r.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("read the state of triggers: %w", err)
	}
	if r.schedules != nil && len(scheduled) > 0 {
		var err error
		if f.schedules, err = r.schedules.Reports(ctx, scheduled); err != nil {
			return nil, err
		}
	}
	list := make([]trigger.Status, len(triggers))
	for i, t := range triggers {
		list[i] = f.status(t)
	}
	return list, nil
}

// Seats returns how many members a trigger is to have. Webhooks have none: every process
// that serves the API takes their requests. Nor have schedules: every process with the role
// triggers sees when they are due.
func Seats(t trigger.Stored) int {
	if t.Type == trigger.TypeKafka && t.IsEnabled() {
		return max(t.Members, 1)
	}
	return 0
}

func (f *found) scanMembers(rows pgx.Rows) error {
	var uid string
	var m memberFound
	var next *time.Time
	var cause, notes, effective []byte
	_, err := pgx.ForEachRow(rows, []any{&uid, &m.Member, &m.Owner, &m.token, &m.Revision, &m.State, &cause, &m.Since, &next,
		&m.Attempts, &notes, &effective, &m.ReportedAt}, func() error {
		row := m
		row.Since, row.ReportedAt = row.Since.UTC(), row.ReportedAt.UTC()
		if next != nil {
			row.NextTry = next.UTC()
		}
		for text, into := range map[*[]byte]any{&cause: &row.Cause, &notes: &row.notes, &effective: &row.effective} {
			if *text == nil {
				continue
			}
			if err := json.Unmarshal(*text, into); err != nil {
				return err
			}
		}
		f.members[Seat{uid, row.Member}] = row
		return nil
	})
	return err
}

func (f *found) scanPartitions(rows pgx.Rows) error {
	var uid string
	var p partitionFound
	var next *time.Time
	var cause []byte
	_, err := pgx.ForEachRow(rows, []any{&uid, &p.Topic, &p.Partition, &p.TopicID, &p.Member, &p.token, &p.State, &cause, &p.Offset, &p.Key,
		&p.Committed, &p.End, &p.Since, &next, &p.Attempts, &p.ReportedAt, &p.old}, func() error {
		row := p
		p.Key = nil
		row.Since, row.ReportedAt = row.Since.UTC(), row.ReportedAt.UTC()
		if next != nil {
			row.NextTry = next.UTC()
		}
		if cause != nil {
			if err := json.Unmarshal(cause, &row.Cause); err != nil {
				return err
			}
		}
		f.partitions[uid] = append(f.partitions[uid], row)
		return nil
	})
	return err
}

func (f *found) scanLeases(rows pgx.Rows) error {
	var name string
	var t tenure
	_, err := pgx.ForEachRow(rows, []any{&name, &t.owner, &t.token, &t.until, &t.live}, func() error {
		f.leases[name] = t
		return nil
	})
	return err
}

func (f *found) scanNotes(rows pgx.Rows) error {
	var uid string
	var text []byte
	_, err := pgx.ForEachRow(rows, []any{&uid, &text}, func() error {
		var notes []trigger.Cause
		err := json.Unmarshal(text, &notes)
		f.notes[uid] = notes
		return err
	})
	return err
}

// Positions returns what was said last of the partitions of a trigger, by whomever.
func (r *Reader) Positions(ctx context.Context, uid string) ([]trigger.PartitionReport, error) {
	f := &found{partitions: make(map[string][]partitionFound)}
	rows, err := r.pool.Query(ctx, readPartitions, []string{uid}, oldAfter.Seconds())
	if err == nil {
		err = f.scanPartitions(rows)
	}
	if err != nil {
		return nil, fmt.Errorf("read the positions of a trigger: %w", err)
	}
	reports := make([]trigger.PartitionReport, len(f.partitions[uid]))
	for i, p := range f.partitions[uid] {
		reports[i] = p.PartitionReport
	}
	return reports, nil
}
