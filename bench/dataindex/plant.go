package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// planter makes the events of instances.
type planter struct {
	topic string
	// tasks is how many tasks an instance has, payload the size of inputs and outputs.
	tasks   int
	payload json.RawMessage
	// begun counts the instances.
	begun int
}

func (b *bench) planter(topic string) *planter {
	return &planter{topic: topic, tasks: b.tasks, payload: json.RawMessage(`{"order":"` + strings.Repeat("x", b.payload) + `"}`)}
}

// perInstance is how many events an instance has.
func (p *planter) perInstance() int { return 2 + 2*p.tasks }

// together is how many instances run at a time, so that their events lie between each
// other's.
const together = 100

// instances makes the events of some whole instances.
func (p *planter) instances() ([]topics.Record, error) {
	lives := make([][]topics.Record, together)
	for i := range lives {
		life, err := p.instance()
		if err != nil {
			return nil, err
		}
		lives[i] = life
	}
	records := make([]topics.Record, 0, together*p.perInstance())
	for i := range p.perInstance() {
		for _, life := range lives {
			records = append(records, life[i])
		}
	}
	return records, nil
}

// plant publishes whole instances, as many as it takes for so many events at least, and
// returns how many events that are.
func (b *bench) plant(ctx context.Context, p *planter, events int) (n int, err error) {
	for n < events {
		records, err := p.instances()
		if err != nil {
			return n, err
		}
		if err := errors.Join(b.Publisher.PublishRecords(ctx, records)...); err != nil {
			return n, fmt.Errorf("fill the topic: %w", err)
		}
		n += len(records)
	}
	return n, nil
}

// instance makes the events of one instance, in the one shape or the other.
func (p *planter) instance() ([]topics.Record, error) {
	p.begun++
	id := fmt.Sprintf("%s-%07d", p.topic, p.begun)
	start := time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
	events := []*flowEvent{p.workflow(id, "started", start)}
	for i := range p.tasks {
		position := fmt.Sprintf("do/%d/step%d", i, i)
		at := start.Add(time.Duration(1+2*i) * time.Millisecond)
		events = append(events, p.task(id, position, "started", at), p.task(id, position, "completed", at.Add(time.Millisecond)))
	}
	events = append(events, p.workflow(id, "completed", start.Add(time.Second)))
	nested := p.begun%2 == 0
	records := make([]topics.Record, len(events))
	for i, e := range events {
		var err error
		if records[i], err = e.record(p.topic, nested); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// started is the first event of a new instance, which claims to have happened at at.
func (p *planter) started(at time.Time) (id string, r topics.Record, err error) {
	p.begun++
	id = fmt.Sprintf("%s-%07d", p.topic, p.begun)
	r, err = p.workflow(id, "started", at).record(p.topic, p.begun%2 == 0)
	return id, r, err
}

// flowEvent is one event, in no shape yet.
type flowEvent struct {
	kind, instance, position, change string
	at                               time.Time
	payload                          json.RawMessage
}

func (p *planter) workflow(id, change string, at time.Time) *flowEvent {
	return &flowEvent{kind: "workflow", instance: id, change: change, at: at, payload: p.payload}
}

func (p *planter) task(id, position, change string, at time.Time) *flowEvent {
	return &flowEvent{kind: "task", instance: id, position: position, change: change, at: at, payload: p.payload}
}

// record is the event as one engine or the other writes it.
func (e *flowEvent) record(topic string, nested bool) (topics.Record, error) {
	data := e.flat()
	if nested {
		data = e.nested()
	}
	text, err := json.Marshal(data)
	if err != nil {
		return topics.Record{}, err
	}
	env := topics.Envelope{
		ID: fmt.Sprintf("%s-%016x", e.instance, rand.Uint64()), Source: "/bench", Time: e.at,
		Type:            "io.serverlessworkflow." + e.kind + "." + e.change + ".v1",
		DataContentType: topics.ContentTypeJSON, Data: text,
	}
	if !nested {
		env.Subject = e.instance
		return env.Record(topic, []byte(e.instance)), nil
	}
	body, err := topics.EncodeJSON(env)
	return topics.Record{
		Topic: topic, Key: []byte(e.instance), Value: body,
		Headers: []topics.Header{{Key: topics.HeaderContentType, Value: []byte("application/cloudevents+json")}},
	}, err
}

func (e *flowEvent) flat() map[string]any {
	data := map[string]any{"instanceId": e.instance}
	if e.kind == "workflow" {
		data["workflowName"], data["workflowNamespace"], data["workflowVersion"] = "order", "shop", "1.0.0"
	} else {
		data["taskPosition"], data["taskName"] = e.position, e.position
	}
	switch e.change {
	case "started":
		data["startTime"], data["status"], data["input"] = e.at, "RUNNING", e.payload
	default:
		data["endTime"], data["status"], data["output"] = e.at, "COMPLETED", e.payload
	}
	return data
}

func (e *flowEvent) nested() map[string]any {
	at := json.Number(fmt.Sprintf("%d.%09d", e.at.Unix(), e.at.Nanosecond()))
	definition := map[string]any{"namespace": "shop", "name": "order", "version": "1.0.0"}
	data := map[string]any{"name": e.instance, "definition": definition}
	if e.kind == "task" {
		data = map[string]any{"workflow": e.instance, "task": e.position}
	}
	if e.change == "started" {
		data["startedAt"] = at
	} else {
		data["completedAt"], data["output"] = at, e.payload
	}
	return data
}
