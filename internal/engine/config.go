package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/internal/outbox"
	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/topics"
)

// Plans finds compiled definitions: definitions.Store.
type Plans interface {
	// Plan returns the plan of a definition, and which version it is. Version 0 means the
	// latest.
	Plan(ctx context.Context, id string, version int) (*workflow.Plan, int, error)
}

// Jobs is what the engine asks of jobs within its transactions: jobs.Store.
type Jobs interface {
	// Lock is preceded by what turns off reading tables from end to end.
	Lock(b *pgx.Batch, ids []uuid.UUID, locked map[uuid.UUID]jobs.Held)
	Queue(b *pgx.Batch, w jobs.Writes) (jobs.Queued, error)
	// Committed and Abandoned tell what became of a transaction that Queue was part of, when
	// Writes.Handing was set. Committed is called after every commit.
	Committed(q jobs.Queued, doubtful ...jobs.Queued)
	Abandoned(q jobs.Queued)
	// Prepare tells of types of which there may be jobs soon. It does not block.
	Prepare(types []string)
}

// Signals wakes those who wait for a name; see postgres.Signals.
type Signals interface {
	Wake(name string)
	Subscribe(name string) (wakes <-chan struct{}, stop func())
}

// Sagas is what the transactions of instances that send commands, or can undo something,
// have beside: SagaTopics.
type Sagas interface {
	// Commands returns the entries of the outbox of commands that begin, in order.
	Commands(commands []BegunCommand) ([]outbox.Entry, error)
	// Events returns what an input means on saga_events, in order: nothing when the
	// definition is none that has such events.
	Events(h Happening) []topics.Event
}

// BegunCommand is an activity that is a command.
type BegunCommand struct {
	Instance Instance
	Activity workflow.Activity
	// At is when it began, by the clock of the database; Deadline is when the attempt is
	// given up, zero: never.
	At, Deadline time.Time
}

// Happening is what one input did to one instance: what events are made of.
type Happening struct {
	// Instance is as it is afterwards.
	Instance   Instance
	Definition *workflow.Definition
	// Before is the status before, empty when the input started the instance; Variables
	// are those before it.
	Before    workflow.Status
	Variables json.RawMessage
	Input     workflow.Kind
	Actor     string
	At        time.Time
	// Failure says why the instance failed, is compensating or was cancelled.
	Failure *workflow.Failure
	Entries []workflow.Entry
}

// Config is what an engine is made of. Pool, Plans, Jobs and Signals are required.
type Config struct {
	Pool    *pgxpool.Pool
	Plans   Plans
	Jobs    Jobs
	Signals Signals
	// Handover is the short way to the relay of this process; nil: there is none.
	Handover *outbox.Handover
	// Sagas is nil where no commands are sent: what would send any is not started then.
	Sagas Sagas
	// Limits bound what one instance may need.
	Limits workflow.Limits
	// Transactions is how many may be under way at once. Default 4.
	Transactions int
	// TransactionSize is how many requests may share one. Default 128.
	TransactionSize int
	// Queue is how many requests may wait. Default 4096.
	Queue int
	// Retention is how long instances are kept that have ended; 0: for ever.
	Retention time.Duration
	// NoLifecycle turns the events on flow-lifecycle-out off.
	NoLifecycle bool
	// NoAudit leaves out of the journal what only an audit log needs. The history of
	// instances, sagas and their events are told by the rest.
	NoAudit bool
	// Metrics may be nil, a nil Log discards.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Transactions = cmp.Or(c.Transactions, 4)
	c.TransactionSize = cmp.Or(c.TransactionSize, 128)
	c.Queue = cmp.Or(c.Queue, 4096)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
