package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/bench/internal/fleet"
	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/secret"
)

// takeover is what the part of that name found.
type takeover struct {
	Kills    int `json:"kills"`
	Triggers int `json:"triggers"`
	// Moved are members that the killed processes had.
	Moved int `json:"moved"`
	// Own is from a kill until a trigger of the killed process went on, in all of its
	// partitions; Others the same of triggers of the process that was left alone.
	Own    measure.Summary `json:"taken_over"`
	Others measure.Summary `json:"others"`
}

// line is a trigger of the part with its topic.
type line struct {
	id, topic string
}

func (b *bench) measureTakeover(ctx context.Context) (frame.Part, error) {
	f, err := fleet.New(ctx, b.Run, "takeover", b.binary, b.timeout)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &succession{bench: b, fleet: f, found: &takeover{Kills: b.kills, Triggers: b.triggers}}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	defer c.close()
	var own, others []time.Duration
	for range b.kills {
		o, rest, err := c.kill(ctx)
		if err != nil {
			return nil, err
		}
		own, others = append(own, o...), append(others, rest...)
	}
	c.found.Moved = len(own)
	c.found.Own, c.found.Others = measure.Summarize(own), measure.Summarize(others)
	return c.found, nil
}

// succession is the measurement.
type succession struct {
	*bench
	fleet *fleet.Fleet
	found *takeover
	api   *client.Client
	pool  *pgxpool.Pool
	kafka *kgo.Client
	lines []line
	// runners are the two processes that run triggers.
	runners []*fleet.Member
	started int
	// sent is how many messages were appended.
	sent int64
}

func (c *succession) open(ctx context.Context) (err error) {
	front, err := c.fleet.Start(ctx, "front", "api,relay,coordinator,maintenance")
	if err != nil {
		return err
	}
	if c.api, err = client.New(client.Options{URL: front.Process.Address("api"), Timeout: time.Minute}); err != nil {
		return err
	}
	if c.pool, err = postgres.Open(ctx, postgres.Config{DSN: secret.New(c.fleet.DSN), ApplicationName: "bench"}); err != nil {
		return err
	}
	if c.kafka, err = kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		return err
	}
	for i := range c.triggers {
		l := line{id: fmt.Sprintf("line-%d", i)}
		if l.topic, err = c.CreateTopic(ctx, l.id, c.partitions); err != nil {
			return err
		}
		if _, err := apply(ctx, c.api, l.id, "kafka", kafkaSettings{Topics: []string{l.topic}}); err != nil {
			return err
		}
		c.lines = append(c.lines, l)
	}
	for range 2 {
		if err := c.runner(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *succession) runner(ctx context.Context) error {
	c.started++
	id := fmt.Sprintf("runner-%d", c.started)
	m, err := c.fleet.Start(ctx, id, "triggers", "worker.id="+id)
	if err == nil {
		c.runners = append(c.runners, m)
	}
	return err
}

func (c *succession) close() {
	if c.kafka != nil {
		c.kafka.Close()
	}
	if c.pool != nil {
		c.pool.Close()
	}
	if c.api != nil {
		c.api.Close()
	}
}

// kill kills one of two processes that share all members fairly, and returns how long
// triggers stood: those that it had, and the others. Then another process takes its place.
func (c *succession) kill(ctx context.Context) (own, others []time.Duration, err error) {
	victim := c.runners[0]
	var owners map[string]string
	if err := c.until(ctx, 100*time.Millisecond, "both processes have their share, and all of it runs", func() (ok bool, err error) {
		owners, err = c.owners(ctx)
		share := 0
		for _, owner := range owners {
			if owner == victim.Name {
				share++
			}
		}
		return len(owners) == c.triggers && share >= c.triggers/2 && share <= (c.triggers+1)/2, err
	}); err != nil {
		return nil, nil, err
	}
	if err := c.append(ctx); err != nil { // so that every partition has been read by who has it
		return nil, nil, err
	}
	if err := c.until(ctx, 100*time.Millisecond, "all messages are executions", c.noneLeft(ctx)); err != nil {
		return nil, nil, err
	}
	if err := victim.Process.Signal(syscall.SIGKILL); err != nil {
		return nil, nil, err
	}
	killed := time.Now()
	<-victim.Process.Done()
	if err := c.append(ctx); err != nil {
		return nil, nil, err
	}
	if err := c.until(ctx, 100*time.Millisecond, "all messages are executions again", c.noneLeft(ctx)); err != nil {
		return nil, nil, err
	}
	wentOn, err := c.wentOn(ctx)
	if err != nil {
		return nil, nil, err
	}
	for id, at := range wentOn {
		if stood := at.Sub(killed); owners[id] == victim.Name {
			own = append(own, stood)
		} else {
			others = append(others, stood)
		}
	}
	c.runners = slices.Delete(c.runners, 0, 1)
	return own, others, c.runner(ctx)
}

// owners are the processes of triggers that run.
func (c *succession) owners(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, l := range c.lines {
		status, err := c.api.TriggerStatus(ctx, l.id)
		if err != nil {
			return nil, err
		}
		if status.State != "running" || len(status.Partitions) != c.partitions || len(status.Members) != 1 {
			continue
		}
		for _, r := range c.runners {
			if owner := status.Members[0].Owner; owner == r.Name || len(owner) > len(r.Name) && owner[:len(r.Name)+1] == r.Name+"/" {
				found[l.id] = r.Name
			}
		}
	}
	return found, nil
}

// append appends a message to each partition of each topic.
func (c *succession) append(ctx context.Context) error {
	var records []*kgo.Record
	for _, l := range c.lines {
		for p := range c.partitions {
			c.sent++
			records = append(records, &kgo.Record{Topic: l.topic, Partition: int32(p), Value: body(c.sent)})
		}
	}
	return c.kafka.ProduceSync(ctx, records...).FirstErr()
}

// noneLeft reports whether every message that was appended is an execution.
func (c *succession) noneLeft(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		var n int64
		err := c.pool.QueryRow(ctx, `SELECT count(*) FROM executions`).Scan(&n)
		if n > c.sent {
			return false, fmt.Errorf("%d messages are %d executions", c.sent, n)
		}
		return n == c.sent, err
	}
}

// wentOn is when the message of the last partition of each trigger was made, of the last
// that were appended.
func (c *succession) wentOn(ctx context.Context) (map[string]time.Time, error) {
	rows, err := c.pool.Query(ctx, `SELECT request->'origin'->>'trigger', max(requested_at) FROM executions GROUP BY 1`)
	if err != nil {
		return nil, err
	}
	found := map[string]time.Time{}
	var id string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error { found[id] = at; return nil })
	return found, err
}

// Print implements frame.Part.
func (t *takeover) Print(w io.Writer) {
	fmt.Fprintf(w, "Takeover: one of two processes with %d triggers is killed, %d times; %d members moved\n", t.Triggers, t.Kills, t.Moved)
	measure.Table(w, measure.Heading("from the kill until it goes on"), measure.Row("triggers of the killed process", t.Own), measure.Row("the others", t.Others))
}
