// Command triggers measures what becomes of messages by triggers, on a real Apache Kafka and a
// real PostgreSQL with fsync on:
//
//	go run ./bench/triggers                                        all parts, some ten minutes
//	go run ./bench/triggers -latency 0 -idle 0 -kills 0 -alone 0   intake alone
//	go run ./bench/triggers -rounds 0 -idle 0 -kills 0             latency alone
//	go run ./bench/triggers -rounds 0 -latency 0 -kills 0          memory of idle triggers alone
//	go run ./bench/triggers -rounds 0 -latency 0 -idle 0           takeover alone
//
// # Intake
//
// Messages that wait in a topic become executions that are queued, through one trigger:
// Millrace runs in this process with the roles of -roles, without workers, and admission is
// on hold. Triggers that are set up differently take turns in each round, which gives one
// ratio per way; one per transaction takes a fifth of the messages. Rates count from the
// first execution to the last one created, and to the last one queued, by the clock of the
// database; processor time from applying the trigger.
//
// # Latency
//
// Records are appended at fixed times, whatever became of the others, to a topic with one
// trigger as it is by default. All times count from when a record was due. created_at is
// the database's time in the transaction, before it is committed; an observer with a
// connection of its own asks every millisecond for those that it has not seen, so what it
// sees is committed and on the disk, and its own time is part of the figure.
//
// # Idle
//
// Millrace is a process of its own. What it takes after a collection of its garbage, started
// with -idle triggers of a type, less what it takes without, through that number. Each Kafka
// trigger has a client and a group of its own; all read the same topic, which is empty.
//
// # Takeover
//
// Two processes share the members of -triggers triggers with a topic each, and one of them
// is killed (SIGKILL). Then a message is appended to every partition. A trigger has gone on
// when those of all of its partitions are executions, by the clock of the database. All
// settings of leases and groups are the defaults.
//
// # Creation
//
// Create alone, without Kafka and the rest: one caller hands over batches of different sizes,
// one after the other as a partition's worker does. The last way hands over what is known
// already.
//
// # Costs
//
// Beside each rate stands what it took: microseconds of processor time per message, of this
// process and of the servers, and how many cores were busy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/bench/internal/fleet"
	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// options are the flags.
type options struct {
	rounds, messages, partitions int
	keys, padding                int
	roles                        string
	rate                         float64
	latency, warmUp              time.Duration
	idle                         int
	kills, triggers              int
	alone, conns                 int
	timeout                      time.Duration
	binary                       string
}

func (o *options) flags(fs *flag.FlagSet) {
	fs.IntVar(&o.rounds, "rounds", 3, "intake and creation: rounds; 0 leaves both out")
	fs.IntVar(&o.messages, "messages", 50_000, "intake: messages of a pass; a fifth of that one per transaction; 0 leaves this part out")
	fs.IntVar(&o.partitions, "partitions", 4, "partitions of the topics that triggers read")
	fs.IntVar(&o.keys, "keys", 1000, "intake: keys of messages; with 1 a single partition has them all, and the others are idle")
	fs.IntVar(&o.padding, "padding", 0, "intake: bytes by which messages are larger than some 300")
	fs.StringVar(&o.roles, "roles", "api,triggers,relay,coordinator,maintenance", "intake and latency: what runs in this process")
	fs.Float64Var(&o.rate, "rate", 500, "latency: messages per second")
	fs.DurationVar(&o.latency, "latency", 30*time.Second, "latency: for how long; 0 leaves this part out")
	fs.DurationVar(&o.warmUp, "warm-up", 10*time.Second, "latency: for how long before that, not counted")
	fs.IntVar(&o.idle, "idle", 1000, "idle: triggers of each type; 0 leaves this part out")
	fs.IntVar(&o.kills, "kills", 3, "takeover: how often a process is killed; 0 leaves this part out")
	fs.IntVar(&o.triggers, "triggers", 20, "takeover: triggers that the processes share")
	fs.IntVar(&o.alone, "alone", 20_000, "creation: messages of a pass; a tenth of that one by one; 0 leaves this part out")
	fs.IntVar(&o.conns, "conns", 12, "creation: connections to PostgreSQL")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Minute, "for how long a step may take")
	fs.StringVar(&o.binary, "binary", "", "a binary of Millrace; by default it is built from this tree")
}

func (o *options) check() error {
	switch {
	case o.messages != 0 && o.messages < 1000, o.alone != 0 && o.alone < 1000:
		return errors.New("-messages and -alone must be 0 or at least 1000")
	case o.conns < 1 || o.partitions < 1 || o.keys < 1 || o.padding < 0 || o.rate <= 0 || o.timeout <= 0:
		return errors.New("-conns, -partitions and -keys must be at least 1, -rate and -timeout above 0, -padding not below it")
	case o.rounds < 0 || o.latency < 0 || o.warmUp < 0 || o.idle < 0 || o.kills < 0 || o.triggers < 1:
		return errors.New("-rounds, -latency, -warm-up, -idle and -kills must not be negative, -triggers at least 1")
	}
	return nil
}

func main() {
	var o options
	frame.Main(frame.Program{
		Name: "triggers", Flags: o.flags, Check: o.check,
		Run: func(ctx context.Context, r *frame.Run) error { return run(ctx, o, r) },
	})
}

// bench is what all parts share.
type bench struct {
	options
	*frame.Run
	// create is for the part that measures it alone, next the number of the next message.
	create *ingest.Ingest
	next   int64
}

type quiet struct{}

// Wake implements store.Waker: nobody relays here.
func (quiet) Wake(string) {}

func run(ctx context.Context, o options, r *frame.Run) error {
	if err := postgres.MigrateDSN(ctx, r.DSN); err != nil {
		return err
	}
	b := &bench{options: o, Run: r}
	if o.binary == "" && (o.idle > 0 || o.kills > 0) {
		var err error
		if b.binary, err = fleet.Build(ctx, r); err != nil {
			return err
		}
	}
	return r.Measure(ctx,
		frame.Measurement{Name: "intake", Wanted: o.rounds > 0 && o.messages > 0, Measure: b.measureIntake},
		frame.Measurement{Name: "latency", Wanted: o.latency > 0, Measure: b.measureLatency},
		frame.Measurement{Name: "idle", Wanted: o.idle > 0, Measure: b.measureIdle},
		frame.Measurement{Name: "takeover", Wanted: o.kills > 0, Measure: b.measureTakeover},
		frame.Measurement{Name: "creation", Wanted: o.rounds > 0 && o.alone > 0, Measure: b.measureCreation},
	)
}

// target is a trigger with a mapping of some size.
func target() (*trigger.Compiled, error) {
	var d trigger.Definition
	text, err := definition("orders", "kafka", kafkaSettings{Topics: []string{"orders"}})
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		return nil, err
	}
	t, faults := trigger.Compile(trigger.Stored{Definition: d, UID: uuid.NewString(), Revision: 1}, trigger.Defaults{Brokers: []string{"none:9092"}})
	return t, trigger.Refused(faults)
}

// metadata is what a Kafka source passes on of a record.
type metadata struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Key       string    `json:"key"`
	Timestamp time.Time `json:"timestamp"`
}

// newMessages makes the messages that follow.
func (b *bench) newMessages(n int) []ingest.Message {
	list := make([]ingest.Message, n)
	for i := range list {
		at, key, body := time.Now(), fmt.Appendf(nil, "customer-%d", b.next%1000), body(b.next)
		list[i] = ingest.Message{
			Body: body, Key: key, Time: at, Identity: fmt.Sprint("/orders\norder-", b.next),
			Metadata: metadata{Topic: "orders", Offset: b.next, Key: string(key), Timestamp: at},
			Place: &ingest.Place{
				Cluster: "MkU3OEVBNTcwNTJENDM2Qg", Topic: "orders", TopicID: [16]byte{1, 2, 3}, Offset: b.next,
				Record: topics.Record{Topic: "orders", Key: key, Value: body, Offset: b.next},
			},
		}
		b.next++
	}
	return list
}
