package report_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

func TestMain(m *testing.M) { testenv.Run(m) }

const patience = time.Minute

// desk is a database with triggers in it.
type desk struct {
	t      *testing.T
	pool   *pgxpool.Pool
	reader *report.Reader
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &desk{t, pool, report.NewReader(pool)}
}

func (d *desk) exec(sql string, args ...any) {
	d.t.Helper()
	_, err := d.pool.Exec(d.t.Context(), sql, args...)
	require.NoError(d.t, err)
}

// process is one that runs triggers.
type process struct {
	*report.Writer
	leases *lease.Manager
}

// process starts a process, with a place among those that take part.
func (d *desk) process(name string) *process {
	d.t.Helper()
	p := &process{report.NewWriter(d.pool, nil), lease.NewManager(d.pool, name, time.Hour, nil)}
	d.exec(`INSERT INTO lease_members (kind, member, expires_at) VALUES ('trigger', $1, now() + interval '1 hour')`, p.leases.Owner())
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(d.t, p.Run(ctx)) })
	d.t.Cleanup(func() { cancel(); running.Wait() })
	return p
}

// open takes the lease of a member and opens its line.
func (p *process) open(t *testing.T, stored trigger.Stored, member int) (*report.Line, *lease.Held) {
	t.Helper()
	seat := report.Seat{UID: stored.UID, Member: member}
	held, err := p.leases.Acquire(t.Context(), lease.SlotLease(report.LeaseKind, seat.Slot().Name))
	require.NoError(t, err)
	return p.Open(report.Member{Trigger: stored, Number: member, AlertAfter: time.Hour, Lease: held}), held
}

func kafkaTrigger(id string, members int) trigger.Stored {
	return trigger.Stored{UID: "uid-" + id, Revision: 3, Definition: trigger.Definition{ID: id, Type: trigger.TypeKafka, Members: members}}
}

func (d *desk) status(stored trigger.Stored) trigger.Status {
	d.t.Helper()
	list, err := d.reader.Of(d.t.Context(), stored)
	require.NoError(d.t, err)
	require.Len(d.t, list, 1)
	return list[0]
}

// until waits for a status, which is returned.
func (d *desk) until(stored trigger.Stored, is func(trigger.Status) bool) (s trigger.Status) {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		s = d.status(stored)
		return is(s)
	}, patience, 5*time.Millisecond)
	return s
}

func inState(state trigger.State) func(trigger.Status) bool {
	return func(s trigger.Status) bool { return s.State == state }
}

func partition(n int32, state trigger.State, offset, end int64) trigger.PartitionReport {
	return trigger.PartitionReport{Topic: "orders", Partition: n, State: state, Offset: offset, Committed: offset, End: end, TopicID: "ab"}
}

var limit = trigger.Cause{Code: "limit_reached", Message: "the limit of runs is reached", Hint: "wait"}

func stalled(n int32, offset, end int64, since time.Time) trigger.PartitionReport {
	p := partition(n, trigger.StateError, offset, end)
	p.Cause, p.Since, p.Attempts, p.Key = &limit, since, 2, []byte{0, 0xff, 'k'}
	p.NextTry = since.Add(time.Hour)
	return p
}

func TestWhatAMemberSaysIsItsStatus(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	a := d.process("a")
	orders := kafkaTrigger("orders", 1)
	line, held := a.open(t, orders, 0)
	assert.Equal(t, trigger.StateStarting, d.status(orders).State, "it has not said anything yet")

	now := time.Now().Truncate(time.Microsecond).UTC()
	settings := []trigger.Setting{{Name: "kafka.batch", Value: 100.0, Source: "default"}}
	note := trigger.Cause{Code: "offsets_expire", Message: "offsets expire tomorrow"}
	line.Report(trigger.MemberReport{
		State: trigger.StateRunning, Since: now, Effective: settings, Notes: []trigger.Cause{note},
		Partitions: []trigger.PartitionReport{partition(0, trigger.StateRunning, 10, 15), partition(1, trigger.StateRunning, 7, 7)},
	})
	s := d.until(orders, inState(trigger.StateRunning))
	require.Len(t, s.Members, 1)
	assert.Equal(t, a.leases.Owner(), s.Members[0].Owner)
	assert.EqualValues(t, 3, s.Members[0].Revision)
	assert.Equal(t, settings, s.Effective)
	assert.Equal(t, []trigger.Cause{note}, s.Notes)
	assert.EqualValues(t, 5, *s.Lag)
	assert.Len(t, s.Partitions, 2)

	// One partition stalls: the trigger is an error, and says where.
	line.Report(trigger.MemberReport{
		State: trigger.StateRunning, Since: now,
		Partitions: []trigger.PartitionReport{stalled(0, 12, 20, now), partition(1, trigger.StateRunning, 9, 9)},
	})
	s = d.until(orders, inState(trigger.StateError))
	assert.Equal(t, &trigger.Cause{Code: "limit_reached", Message: "partition 0 of orders at offset 12: the limit of runs is reached", Hint: "wait"}, s.Cause)
	assert.Equal(t, now, s.Since)
	assert.Equal(t, now.Add(time.Hour), s.NextTry)
	assert.Equal(t, []byte{0, 0xff, 'k'}, s.Partitions[0].Key)
	assert.Equal(t, trigger.StateRunning, s.Members[0].State)

	// It goes on.
	line.Report(trigger.MemberReport{State: trigger.StateRunning, Since: now, Partitions: []trigger.PartitionReport{
		partition(0, trigger.StateRunning, 20, 20), partition(1, trigger.StateRunning, 9, 9)}})
	s = d.until(orders, inState(trigger.StateRunning))
	assert.Nil(t, s.Cause)
	assert.Zero(t, *s.Lag)

	// Its process dies.
	d.exec(`UPDATE leases SET expires_at = now() - interval '5 seconds'`)
	d.exec(`DELETE FROM lease_members`)
	s = d.status(orders)
	assert.Equal(t, trigger.StateUnowned, s.State)
	assert.Equal(t, "start a process with the role triggers", s.Cause.Hint)
	assert.Equal(t, trigger.StateUnowned, s.Partitions[0].State)
	assert.EqualValues(t, 20, s.Partitions[0].Committed)
	_ = held
}

func TestStatusWithoutMembers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	off := false
	hook := trigger.Stored{UID: "u1", Definition: trigger.Definition{ID: "hook", Type: trigger.TypeWebhook}}
	disabled := trigger.Stored{UID: "u2", Definition: trigger.Definition{ID: "off", Type: trigger.TypeKafka, Enabled: &off}}
	never := trigger.Stored{UID: "u3", Definition: trigger.Definition{ID: "never", Type: trigger.TypeKafka, Members: 4}}
	list, err := d.reader.Of(t.Context(), hook, disabled, never)
	require.NoError(t, err)
	assert.Equal(t, trigger.StateRunning, list[0].State)
	assert.Equal(t, trigger.StateDisabled, list[1].State)
	assert.Equal(t, trigger.StateUnowned, list[2].State)
	assert.Len(t, list[2].Members, 1, "one is the first thing to be missed")
	assert.Equal(t, "start a process with the role triggers", list[2].Cause.Hint)
	d.process("a")
	assert.Equal(t, trigger.StateUnowned, d.status(never).State)
	never.UpdatedAt = time.Now()
	assert.Equal(t, trigger.StateStarting, d.status(never).State, "it was changed just now")
	none, err := d.reader.Of(t.Context())
	require.NoError(t, err)
	assert.Empty(t, none)
}

// keyless says of every webhook that its secret is not there.
type keyless struct{}

func (keyless) Report(t trigger.Stored) trigger.MemberReport {
	return trigger.MemberReport{State: trigger.StateError, Cause: &trigger.Cause{Code: "secret_missing", Message: "that of " + t.ID}}
}

func TestWebhooksAreAskedWhereTheyAreServed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.reader.AskHooks(keyless{})
	s := d.status(trigger.Stored{UID: "u1", Definition: trigger.Definition{ID: "hook", Type: trigger.TypeWebhook}})
	assert.Equal(t, trigger.StateError, s.State)
	assert.Equal(t, "that of hook", s.Cause.Message)
}

func TestMembersBeyondTheProcessesAreANote(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	orders := kafkaTrigger("orders", 3)
	for n, name := range []string{"a", "b"} {
		line, _ := d.process(name).open(t, orders, n*2) // 0 and 2
		line.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now()})
	}
	s := d.until(orders, inState(trigger.StateRunning))
	assert.Len(t, s.Members, 2)
	require.Len(t, s.Notes, 1)
	assert.Equal(t, "too_few_processes", s.Notes[0].Code)
	d.process("c")
	s = d.status(orders)
	assert.Equal(t, trigger.StateUnowned, s.State, "now it could run")
	assert.Len(t, s.Members, 3)
}

// A process that does not know yet that it lost the lease overwrites nothing.
func TestAZombieWritesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	orders := kafkaTrigger("orders", 1)
	a, b := d.process("a"), d.process("b")
	old, _ := a.open(t, orders, 0)
	old.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now()})
	d.until(orders, inState(trigger.StateRunning))
	d.exec(`UPDATE leases SET expires_at = now()`)
	fresh, _ := b.open(t, orders, 0)
	fresh.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now(), Partitions: []trigger.PartitionReport{partition(0, trigger.StateRunning, 5, 5)}})
	d.until(orders, inState(trigger.StateRunning))
	old.Report(trigger.MemberReport{State: trigger.StateError, Cause: &limit, Since: time.Now(), Partitions: []trigger.PartitionReport{stalled(0, 3, 9, time.Now())}})
	old.Close(true) // and removes nothing; it waits until both were tried
	s := d.status(orders)
	assert.Equal(t, trigger.StateRunning, s.State)
	assert.Equal(t, b.leases.Owner(), s.Members[0].Owner)
	assert.EqualValues(t, 5, s.Partitions[0].Offset)
}

// Since when something stands is kept when the owner changes, and told of after a while.
func TestAStallOutlivesItsOwner(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	orders, bad := kafkaTrigger("orders", 1), kafkaTrigger("bad", 1)
	long := time.Now().Add(-2 * time.Hour).Truncate(time.Microsecond).UTC()
	a, b := d.process("a"), d.process("b")
	line, held := a.open(t, orders, 0)
	line.Report(trigger.MemberReport{State: trigger.StateRunning, Since: long, Partitions: []trigger.PartitionReport{stalled(0, 3, 9, long)}})
	worse, badHeld := a.open(t, bad, 0)
	worse.Report(trigger.MemberReport{State: trigger.StateError, Cause: &limit, Since: long, Attempts: 7})
	stalls := func() (list []report.Stall) {
		require.NoError(t, postgres.InTx(t.Context(), d.pool, func(ctx context.Context, tx pgx.Tx) (err error) {
			list, err = report.LongStalls(ctx, tx, 10)
			return err
		}))
		return list
	}
	both := func() bool { return len(stalls()) == 2 }
	require.Eventually(t, both, patience, 5*time.Millisecond)

	line.Close(false)
	worse.Close(false)
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, badHeld.Release(t.Context()))
	line, _ = b.open(t, orders, 0)
	worse, _ = b.open(t, bad, 0)
	line.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now(), Partitions: []trigger.PartitionReport{partition(0, trigger.StateStarting, 3, 9)}})
	worse.Report(trigger.MemberReport{State: trigger.StateStarting, Since: time.Now()})
	d.until(orders, func(s trigger.Status) bool {
		return s.State == trigger.StateRunning && s.Members[0].Owner == b.leases.Owner()
	})
	assert.Len(t, stalls(), 2, "it has not come to it yet")
	line.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now(), Partitions: []trigger.PartitionReport{stalled(0, 3, 9, time.Now())}})
	s := d.until(orders, inState(trigger.StateError))
	assert.Equal(t, long, s.Since)
	for _, stall := range stalls() {
		assert.Equal(t, long, stall.Since.UTC())
		assert.Equal(t, "limit_reached", stall.Cause.Code)
	}
	assert.EqualValues(t, 3, stalls()[map[bool]int{true: 0, false: 1}[stalls()[0].Topic == "orders"]].Offset)

	// The message is made, and the trigger runs.
	line.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now(), Partitions: []trigger.PartitionReport{partition(0, trigger.StateRunning, 4, 9)}})
	worse.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now()})
	require.Eventually(t, func() bool { return len(stalls()) == 0 }, patience, 5*time.Millisecond)

	// Nobody has it any more.
	d.exec(`UPDATE leases SET expires_at = now() - interval '2 hours' WHERE name LIKE '%uid-bad%'`)
	require.Len(t, stalls(), 1)
	assert.Equal(t, trigger.StateUnowned, stalls()[0].State)
	assert.Equal(t, "bad", stalls()[0].Trigger)
}

func TestWhatIsGivenUpStaysAsAPosition(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	orders := kafkaTrigger("orders", 1)
	a := d.process("a")
	line, held := a.open(t, orders, 0)
	say := func(partitions ...trigger.PartitionReport) {
		line.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now(), Partitions: partitions})
	}
	say(partition(0, trigger.StateRunning, 10, 10), partition(1, trigger.StateRunning, 20, 20))
	d.until(orders, func(s trigger.Status) bool { return len(s.Partitions) == 2 })
	say(partition(0, trigger.StateRunning, 11, 11))
	s := d.until(orders, func(s trigger.Status) bool { return s.Partitions[1].State == trigger.StateUnowned })
	assert.Equal(t, trigger.StateRunning, s.State, "somebody else may have it in a moment")
	d.exec(`UPDATE trigger_partitions SET reported_at = now() - interval '5 minutes'`)
	s = d.status(orders)
	require.Len(t, s.Partitions, 1, "it is not there any more; what is there may rest")
	assert.EqualValues(t, 0, s.Partitions[0].Partition)

	// Who does not know how far the group has come leaves what was known.
	unknown := partition(0, trigger.StateStarting, 11, -1)
	unknown.Committed, unknown.TopicID = -1, ""
	say(unknown)
	s = d.until(orders, func(s trigger.Status) bool { return s.Partitions[0].State == trigger.StateStarting })
	assert.EqualValues(t, 11, s.Partitions[0].Committed)
	assert.Equal(t, "ab", s.Partitions[0].TopicID)
	anew := unknown
	anew.TopicID, anew.Offset = "cd", 0
	say(anew)
	s = d.until(orders, func(s trigger.Status) bool { return s.Partitions[0].TopicID == "cd" })
	assert.EqualValues(t, -1, s.Partitions[0].Committed, "that of another topic says nothing")

	require.Len(t, s.Partitions, 1)
	positions, err := d.reader.Positions(t.Context(), orders.UID)
	require.NoError(t, err)
	assert.Len(t, positions, 1, "and what was given up of it is gone")
	say(partition(0, trigger.StateRunning, 11, 11), partition(1, trigger.StateRunning, 20, 20))
	d.until(orders, func(s trigger.Status) bool { return len(s.Partitions) == 2 })
	say(partition(0, trigger.StateRunning, 11, 11))

	// What was said last before the end is written, and stays when the trigger is switched off.
	say(partition(0, trigger.StateRunning, 15, 15))
	line.Close(true)
	require.NoError(t, held.Release(t.Context()))
	positions, err = d.reader.Positions(t.Context(), orders.UID)
	require.NoError(t, err)
	require.Len(t, positions, 2)
	assert.EqualValues(t, 15, positions[0].Committed)
	assert.EqualValues(t, 20, positions[1].Committed)
	assert.Equal(t, "ab", positions[0].TopicID)
	require.NoError(t, a.Sweep(t.Context(), nil, []string{orders.UID}, 0))
	positions, err = d.reader.Positions(t.Context(), orders.UID)
	require.NoError(t, err)
	assert.Len(t, positions, 2)
	require.NoError(t, a.Sweep(t.Context(), nil, []string{"another"}, 0))
	positions, err = d.reader.Positions(t.Context(), orders.UID)
	require.NoError(t, err)
	assert.Empty(t, positions, "the trigger is not there any more")
}

// What cannot be stored is left out, and keeps nobody else from being seen.
func TestOneBadReportLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	a := d.process("a")
	good, bad, worse, odd := kafkaTrigger("good", 1), kafkaTrigger("bad", 1), kafkaTrigger("worse", 1), kafkaTrigger("odd", 1)
	badLine, _ := a.open(t, bad, 0)
	worseLine, _ := a.open(t, worse, 0)
	oddLine, _ := a.open(t, odd, 0)
	goodLine, _ := a.open(t, good, 0)
	value := func(v any) []trigger.Setting { return []trigger.Setting{{Name: "n", Value: v}} }
	badLine.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now(), Effective: value(json.Number("1e999999"))})
	worseLine.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now(), Effective: value(func() {})})
	long := "secret\x00\xff" + strings.Repeat("ü", 4000)
	oddLine.Report(trigger.MemberReport{State: trigger.StateError, Since: time.Now(), Cause: &trigger.Cause{Code: "x", Message: long},
		Effective: value("a\x00b")})
	goodLine.Report(trigger.MemberReport{State: trigger.StateRunning, Since: time.Now()})
	d.until(good, inState(trigger.StateRunning))
	s := d.until(odd, inState(trigger.StateError))
	assert.Contains(t, s.Cause.Message, "secret\uFFFD\uFFFDü")
	assert.Less(t, len(s.Cause.Message), 2100)
	assert.Equal(t, trigger.StateStarting, d.status(bad).State)
	assert.Equal(t, trigger.StateStarting, d.status(worse).State)
}
