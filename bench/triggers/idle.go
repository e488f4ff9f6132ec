package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/bench/internal/fleet"
	"github.com/millrace/millrace/bench/internal/frame"
	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/internal/client"
)

// idle is what the part of that name found.
type idle struct {
	Triggers int        `json:"triggers"`
	Empty    fleet.Size `json:"empty"`
	Types    []idleType `json:"types"`
}

// idleType is what triggers of a type take while nothing happens.
type idleType struct {
	Type string     `json:"type"`
	Size fleet.Size `json:"size"`
	// Ready is from starting a process until all of them run in it, Cores what it takes then.
	Ready time.Duration `json:"ready_ns"`
	Cores float64       `json:"cores"`
}

// pageSize is how many triggers are asked for at once.
const pageSize = 200

// steady is for how long it is measured what nothing costs.
const steady = 10 * time.Second

func (b *bench) measureIdle(ctx context.Context) (frame.Part, error) {
	found := &idle{Triggers: b.idle}
	topic, err := b.CreateTopic(ctx, "idle", 1)
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		source   string
		settings any
	}{
		{"kafka", kafkaSettings{Topics: []string{topic}}},
		{"webhook", map[string]any{"auth": map[string]any{"none": true}}},
		{"schedule", map[string]any{"cron": "0 0 1 1 *"}},
	} {
		row, empty, err := b.standing(ctx, of.source, of.settings)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.source, err)
		}
		found.Types, found.Empty = append(found.Types, row), empty
	}
	return found, nil
}

// standing measures triggers of one type in a process of their own.
func (b *bench) standing(ctx context.Context, source string, settings any) (row idleType, empty fleet.Size, err error) {
	f, err := fleet.New(ctx, b.Run, "idle_"+source, b.binary, b.timeout)
	if err != nil {
		return row, empty, err
	}
	defer f.Close()
	m, err := f.Start(ctx, "millrace", b.roles)
	if err != nil {
		return row, empty, err
	}
	if empty, err = m.Size(ctx); err != nil {
		return row, empty, err
	}
	if err := b.applyAll(ctx, m, source, settings); err != nil {
		return row, empty, err
	}
	// What was taken for applying them does not count.
	if err := m.Stop(ctx); err != nil {
		return row, empty, err
	}
	began := time.Now()
	if m, err = f.Start(ctx, "millrace", b.roles); err != nil {
		return row, empty, err
	}
	api, err := client.New(client.Options{URL: m.Process.Address("api"), Timeout: time.Minute})
	if err != nil {
		return row, empty, err
	}
	defer api.Close()
	if err := b.until(ctx, 200*time.Millisecond, "all triggers run", func() (bool, error) { return b.allRun(ctx, api, m, source) }); err != nil {
		return row, empty, err
	}
	row = idleType{Type: source, Ready: time.Since(began)}
	before, from := m.CPU(), time.Now()
	select {
	case <-time.After(steady):
	case <-ctx.Done():
		return row, empty, ctx.Err()
	}
	row.Cores = (m.CPU() - before).Seconds() / time.Since(from).Seconds()
	row.Size, err = m.Size(ctx)
	return row, empty, err
}

func (b *bench) applyAll(ctx context.Context, m *fleet.Member, source string, settings any) error {
	api, err := client.New(client.Options{URL: m.Process.Address("api"), Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer api.Close()
	for i := range b.idle {
		if _, err := apply(ctx, api, fmt.Sprintf("idle-%d", i), source, settings); err != nil {
			return err
		}
	}
	return nil
}

// allRun reports whether there are all triggers, and each says that it is well; what Kafka
// triggers said to the process before does not count.
func (b *bench) allRun(ctx context.Context, api *client.Client, m *fleet.Member, source string) (bool, error) {
	n := 0
	for t, err := range api.Triggers(ctx, "", pageSize) {
		if err != nil {
			return false, err
		}
		if t.Cause != nil && t.State != "unowned" { // which it is until the new process has taken it
			text, _ := json.Marshal(t.Cause)
			return false, fmt.Errorf("trigger %s is in the state %s: %s", t.ID, t.State, text)
		}
		if t.State == "running" {
			n++
		}
	}
	if n < b.idle {
		return false, nil
	}
	if source != "kafka" { // these have no members
		return true, nil
	}
	found, err := m.Metrics(ctx)
	return int(found[`millrace_trigger_members{state="running",type="kafka"}`]) == b.idle, err
}

// Print implements frame.Part.
func (i *idle) Print(w io.Writer) {
	fmt.Fprintf(w, "Idle: %d triggers of each type in one process, which takes %.0f MiB without any, of it %.0f MiB of heap and %.0f of stacks, with %.0f goroutines\n",
		i.Triggers, i.Empty.Resident, i.Empty.Heap, i.Empty.Stacks, i.Empty.Goroutines)
	rows := [][]string{{"type", "KiB resident each", "of it heap", "and stacks", "goroutines each", "ready after s", "cores"}}
	for _, t := range i.Types {
		row := []string{t.Type}
		for _, mib := range []float64{t.Size.Resident - i.Empty.Resident, t.Size.Heap - i.Empty.Heap, t.Size.Stacks - i.Empty.Stacks} {
			row = append(row, fmt.Sprintf("%.1f", mib*1024/float64(i.Triggers)))
		}
		rows = append(rows, append(row, fmt.Sprintf("%.1f", (t.Size.Goroutines-i.Empty.Goroutines)/float64(i.Triggers)),
			fmt.Sprintf("%.1f", t.Ready.Seconds()), fmt.Sprintf("%.2f", t.Cores)))
	}
	measure.Table(w, rows...)
}
