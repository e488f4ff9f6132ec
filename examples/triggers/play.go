package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/trigger"
)

// errWrong is the verdict that something was lost, doubled or out of order.
var errWrong = errors.New("a trigger did not do what it promises")

// pollEvery is how often it looks whether something has happened.
const pollEvery = 50 * time.Millisecond

//go:embed triggers.yaml
var definitions string

// play is one performance.
type play struct {
	options
	out   io.Writer
	began time.Time
	// name is part of the names of topics and groups.
	name   string
	secret string
	url    string
	api    *client.Client
	kafka  *cluster
	work   *work
	parts  *installation
	// uids are by trigger. Topics that were played on before tell of other triggers of these
	// names.
	uids map[string]string
	// promises counts what was looked at, broken what was not as it should be; started is
	// how much was started.
	promises, broken, started int
}

// run performs it and returns errWrong when that is the verdict.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	p := &play{options: o, out: out, began: time.Now(), name: "example-" + strings.ToLower(rand.Text()[:8]), secret: rand.Text(), work: newWork(), uids: map[string]string{}}
	p.say("starting a broker, a database, and two processes' worth of Millrace in this one ...")
	if p.parts, err = install(ctx, o, p.work, p.secret); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.parts.stop()) }()
	p.url = p.parts.first.URL
	if p.api, err = client.New(client.Options{URL: p.url}); err != nil {
		return err
	}
	defer p.api.Close()
	if p.kafka, err = dial(p.parts.first.Brokers); err != nil {
		return err
	}
	defer p.kafka.close()
	defer func() { err = errors.Join(err, p.clear(ctx)) }()
	for _, scene := range []func(context.Context) error{
		p.begin, p.orders, p.poison, p.parcels, p.payments, p.leave, p.heartbeat, p.compare,
	} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return p.judge()
}

// begin makes the topics and applies the triggers.
func (p *play) begin(ctx context.Context) error {
	for topic, partitions := range map[string]int32{"orders": 3, "parcels": 2} {
		if err := p.kafka.create(ctx, p.of(topic), partitions); err != nil {
			return err
		}
	}
	if err := p.apply(ctx, definitions); err != nil {
		return err
	}
	for _, id := range []string{"orders", "parcels"} {
		if err := p.until(ctx, "members of "+id+" run", func() (bool, error) {
			s, err := p.api.TriggerStatus(ctx, id)
			return err == nil && s.State == string(trigger.StateRunning), err
		}); err != nil {
			return err
		}
	}
	return nil
}

// of returns the name of a topic or a group of ours.
func (p *play) of(what string) string { return p.name + "-" + what }

// apply applies definitions, with names of our own for topics and groups, since the cluster
// may be somebody else's too.
func (p *play) apply(ctx context.Context, text string) error {
	documents, faults := trigger.ReadDocuments([]byte(text))
	if err := trigger.Refused(faults); err != nil {
		return err
	}
	for _, d := range documents {
		definition := d.Definition
		if k := definition.Kafka; k != nil {
			k.Topics, k.Group = []string{p.of(definition.ID)}, p.of(definition.ID)
		}
		raw, err := definition.Export()
		if err != nil {
			return err
		}
		applied, err := p.api.ApplyTrigger(ctx, definition.ID, raw, false)
		if err != nil {
			return err
		}
		p.uids[applied.ID] = applied.UID
		if applied.Status == "unchanged" {
			continue
		}
		p.say("trigger %s (%s) is %s", applied.ID, applied.Type, applied.Status)
		for _, w := range applied.Warnings {
			p.say("  warning %s: %s", w.Code, w.Message)
		}
	}
	return nil
}

// clear removes what is not in the directory of its own.
func (p *play) clear(ctx context.Context) error {
	if len(p.options.brokers) == 0 {
		return nil
	}
	// Also when the play was interrupted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var errs []error
	for _, id := range []string{"orders", "parcels"} {
		if _, err := p.api.SwitchTrigger(ctx, id, false); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, p.until(ctx, "the group of "+id+" is deleted", func() (bool, error) {
			return p.kafka.deleteGroup(ctx, p.of(id)), nil
		}))
	}
	return errors.Join(append(errs, p.kafka.deleteTopics(ctx, p.of("orders"), p.of("parcels")))...)
}

// until waits for something.
func (p *play) until(ctx context.Context, what string, holds func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// promise notes whether something is as it should be.
func (p *play) promise(kept bool, format string, args ...any) {
	p.promises++
	if !kept {
		p.broken++
		format = "WRONG, this does not hold: " + format
	}
	p.say(format, args...)
}

func (p *play) judge() error {
	if p.broken > 0 {
		fmt.Fprintf(p.out, "WRONG: %d of %d promises were broken\n", p.broken, p.promises)
		return errWrong
	}
	fmt.Fprintf(p.out, "RIGHT: %d executions and instances were started by Kafka, a webhook and a schedule, each once and in order, nothing was lost (%d promises)\n",
		p.started, p.promises)
	return nil
}

func (p *play) say(format string, args ...any) {
	fmt.Fprintf(p.out, "%5.1f s "+format+"\n", append([]any{time.Since(p.began).Seconds()}, args...)...)
}
