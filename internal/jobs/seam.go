package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/outbox"
)

// ID returns the id of the job that is an activity of an instance. It needs no look-up:
// whoever knows the instance's state knows its jobs. It is a UUID of version 7, of about
// the time of the instance, so that jobs lie together in their index.
func ID(instance uuid.UUID, activity int) uuid.UUID {
	var text [24]byte
	copy(text[:], instance[:])
	binary.BigEndian.PutUint64(text[16:], uint64(activity))
	sum := sha256.Sum256(text[:])
	id := instance
	id[6] = 0x70 | id[6]&0x0f
	copy(id[8:], sum[:8])
	id[8] = 0x80 | id[8]&0x3f
	return id
}

// Held is a job whose row the transaction has locked: what Judge judges.
type Held struct {
	// Job is the job, without its variables. WorkerID is its last holder.
	Job
	// Expired counts the leases that ran out in its present attempt.
	Expired int
	// Dispatched is true while the job is on its way through Kafka, and nobody needs to
	// claim it.
	Dispatched bool
	// Input is what it gets when that is not the variables of the instance.
	Input json.RawMessage
	// OnHold is true while its instance is suspended.
	OnHold bool
	// RunAt is when it may be claimed at the earliest.
	RunAt time.Time
	// Now is the time of the database's clock at which the row was locked.
	Now time.Time
}

// Report is what a holder says of its job.
type Report string

// The reports.
const (
	Completes Report = "completed"
	Fails     Report = "failed"
)

// ErrAgain says that the same report of the same holder was accepted before: it changes
// nothing, and its sender is told that all is well.
var ErrAgain = errors.New("the report was accepted before")

// New is a job that begins.
type New struct {
	// InstanceID and Activity identify it; see ID. Step and StepID are its step.
	InstanceID     uuid.UUID
	Activity, Step int
	StepID         string
	JobType        string
	Priority       int
	// Attempt counts from 1; RetriesRemaining is how many failures are left.
	Attempt, RetriesRemaining int
	// RunAt is when it may run at the earliest; zero: at once.
	RunAt time.Time
	// Input is what it gets when that is not the variables of the instance; it is stored.
	Input json.RawMessage
	// Variables are those of the instance after this transaction, for a record that
	// carries them. They are not stored.
	Variables json.RawMessage
}

// Again puts a job up once more.
type Again struct {
	// Held is the job as it was locked.
	Held Held
	// Attempt and RetriesRemaining are those of the attempt that follows.
	Attempt, RetriesRemaining int
	// RunAt is when it may run at the earliest; zero: at once.
	RunAt time.Time
	// Expired is true when the lease ran out rather than the attempt failed: the attempt
	// stays the same, and the one who held it may still complete it until somebody else
	// takes the job.
	Expired bool
	// Input, when set, replaces the job's own. Variables are as in New.
	Input     json.RawMessage
	Variables json.RawMessage
}

// Finished ends a job that somebody held.
type Finished struct {
	ID      uuid.UUID
	JobType string
	// Status is Completed or Failed.
	Status Status
	// WorkerID is who said so; empty: whoever held it.
	WorkerID string
}

// Writes are what one transaction does to jobs. The transaction holds the rows of the
// instances, and of all jobs but those in Insert, Cancel, Hold and Release.
type Writes struct {
	Insert []New
	Again  []Again
	Finish []Finished
	// Cancel voids jobs, Hold keeps them from being claimed while their instance is
	// suspended, Release ends that. Jobs that have ended, or are not there, are passed over.
	Cancel, Hold, Release []uuid.UUID
	// Handing lets jobs that begin go to claims that wait, in the same transaction. What became
	// of it has to be told then: see Store.Committed and Store.Abandoned.
	Handing bool
}

// Requests that share a transaction may say one thing of a job and then another: an instance
// that is suspended, told of a failure and resumed takes the failure, and makes another
// attempt, in one. The last word counts, so these take back what was said before.

// Retry puts up a job once more.
func (w *Writes) Retry(a Again) {
	w.Finish = slices.DeleteFunc(w.Finish, func(f Finished) bool { return f.ID == a.Held.ID })
	w.Again = append(w.Again, a)
}

// End finishes a job.
func (w *Writes) End(f Finished) {
	w.Again = slices.DeleteFunc(w.Again, func(a Again) bool { return a.Held.ID == f.ID })
	w.Finish = append(w.Finish, f)
}

// Suspend holds jobs.
func (w *Writes) Suspend(ids ...uuid.UUID) {
	w.Release = without(w.Release, ids)
	w.Hold = append(w.Hold, ids...)
}

// Resume releases jobs.
func (w *Writes) Resume(ids ...uuid.UUID) {
	w.Hold = without(w.Hold, ids)
	w.Release = append(w.Release, ids...)
}

func without(all, ids []uuid.UUID) []uuid.UUID {
	return slices.DeleteFunc(all, func(id uuid.UUID) bool { return slices.Contains(ids, id) })
}

// Queued is what follows from Writes that were queued.
type Queued struct {
	// Entries belong into the outbox, in the same transaction.
	Entries []outbox.Entry
	// Types are the types of which jobs can be claimed once the transaction is committed,
	// once for each job: Store.Woken takes them.
	Types []string
	// handing has the jobs that begin in somebody's hands, if any, inserted the ids of all
	// that begin.
	handing  *handing
	inserted []uuid.UUID
}

// Expired is a lease that ran out.
type Expired struct {
	JobID, InstanceID uuid.UUID
	Activity          int
	JobType           string
	// Token is that of the lease: see JudgeExpired.
	Token int64
	// Expired is how many have run out in this attempt, this one included.
	Expired int
	// WorkerID is who held it; empty: nobody took what Kafka brought.
	WorkerID string
	// Quarantine is true when there were too many: the job is to fail for good, with
	// QuarantineCode. Otherwise it is to be put up Again.
	Quarantine bool
}

// Failure codes of expired leases.
const (
	ExpiredCode    = "lease_expired"
	QuarantineCode = "quarantined"
)

// Reporter takes expired leases, locks instance and job, judges with JudgeExpired, and
// writes what follows: Again or a final failure. What it leaves as it is comes again.
type Reporter interface {
	JobsExpired(ctx context.Context, expired []Expired) error
}

// Beat says that a holder is still at work.
type Beat struct {
	Holder
	// Lease is for how long the job is held from now on; 0: as long as when it was claimed.
	Lease time.Duration
}

// BeatResult answers a Beat.
type BeatResult struct {
	// LockExpiresAt is the new end of the lease, when Err is nil.
	LockExpiresAt time.Time
	// Err is ErrNotFound, ErrLeaseLost or ErrFinished: the holder should stop. Cancelled
	// is set when that is because the job was voided.
	Err       error
	Cancelled bool
}

// Mode is how jobs reach workers.
type Mode string

// The modes.
const (
	Polling     Mode = "polling"
	KafkaOutbox Mode = "kafka_outbox"
)
