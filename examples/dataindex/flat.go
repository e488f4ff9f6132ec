package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/e2e/dataindex"
)

// A teller tells the story of one instance in the flat data that Millrace writes
// itself, and knows how the story ends. Times are told in all the ways that are read.
type teller struct {
	instance dataindex.Instance
	began    time.Time
	records  []dataindex.Record
	told     int
}

// stories returns n stories, which began at that time: the turns that requirement 000 and
// the data index have something to say about.
func stories(name string, began time.Time, n int) (all dataindex.Recording) {
	kinds := []func(*teller){orderOutOfOrder, orphan, pausedAndResumed, retried, looped}
	for i := range n {
		t := &teller{began: began.Add(time.Duration(i) * time.Second).UTC().Truncate(time.Second)}
		t.instance = dataindex.Instance{
			ID: fmt.Sprintf("%s-%05d", name, i), Namespace: "org.acme", Version: "1.0.0", Start: t.at(0),
		}
		kinds[i%len(kinds)](t)
		all.Records = append(all.Records, t.records...)
		all.Instances = append(all.Instances, t.instance)
	}
	return all
}

// orderOutOfOrder is the example of requirement 000: an end is told twice, and the
// later one counts, whichever comes first.
func orderOutOfOrder(t *teller) {
	t.define("order-processing")
	t.workflow("started", 0, map[string]any{"input": map[string]any{"orderId": t.instance.ID}})
	t.workflow("completed", 60, map[string]any{"endTime": t.millis(60), "output": map[string]any{"total": 0}})
	t.workflow("completed", 300, map[string]any{"endTime": t.offset(300), "output": map[string]any{"total": 12}})
	t.ends("COMPLETED", 300, `{"total":12}`)
}

// orphan is the other example: tasks come before the workflow that they belong to.
func orphan(t *teller) {
	t.define("orphan-tasks")
	t.task("started", 1, "do/0/check", map[string]any{"startTime": t.epoch(1)})
	t.task("completed", 2, "do/0/check", map[string]any{"endTime": t.epoch(2), "output": true})
	t.workflow("started", 0, nil)
	t.instance.Status = "RUNNING"
	t.done("do/0/check", 0, 0, 1, 2, "true")
}

func pausedAndResumed(t *teller) {
	t.define("approval")
	t.workflow("created", -5, nil)
	t.workflow("started", 0, nil)
	t.workflow("suspended", 10, nil)
	t.workflow("resumed", 20, nil)
	t.workflow("suspended", 30, nil)
	t.instance.Status = "SUSPENDED"
}

// retried had faulted: of that nothing is left but the attempt of its task.
func retried(t *teller) {
	t.define("payment")
	failure := map[string]any{"type": "https://acme.org/errors/gateway", "status": 503, "title": "Gateway unavailable"}
	t.workflow("started", 0, nil)
	t.task("started", 1, "do/0/pay", map[string]any{"startTime": t.offset(1)})
	t.task("faulted", 2, "do/0/pay", map[string]any{"endTime": t.millis(2), "error": failure})
	t.workflow("faulted", 3, map[string]any{"endTime": t.utc(3), "error": failure})
	t.workflow("retried", 4, nil)
	t.task("started", 5, "do/0/pay", map[string]any{"attempt": 1, "startTime": t.utc(5)})
	t.task("completed", 6, "do/0/pay", map[string]any{"attempt": 1, "endTime": t.utc(6), "output": "receipt"})
	t.workflow("completed", 7, map[string]any{"endTime": t.utc(7), "output": "paid"})
	status, title := 503, "Gateway unavailable"
	end := t.at(2)
	t.instance.Tasks = append(t.instance.Tasks, dataindex.Task{
		Position: "do/0/pay", Name: "pay", Status: "FAULTED", Start: t.at(1), End: &end,
		Error: &dataindex.Error{Type: "https://acme.org/errors/gateway", Status: &status, Title: &title},
	})
	t.done("do/0/pay", 0, 1, 5, 6, `"receipt"`)
	t.ends("COMPLETED", 7, `"paid"`)
}

// looped tells the turns of its loop apart.
func looped(t *teller) {
	t.define("invoice-lines")
	t.workflow("started", 0, nil)
	for turn := range 3 {
		t.task("started", 1+2*turn, "do/0/lines/do/0/add", map[string]any{"iteration": turn, "startTime": t.utc(1 + 2*turn)})
		t.task("completed", 2+2*turn, "do/0/lines/do/0/add", map[string]any{"iteration": turn, "endTime": t.epoch(2 + 2*turn), "output": turn})
		t.done("do/0/lines/do/0/add", turn, 0, 1+2*turn, 2+2*turn, fmt.Sprint(turn))
	}
	t.workflow("cancelled", 10, map[string]any{"endTime": t.offset(10)})
	t.ends("CANCELLED", 10, "")
}

func (t *teller) define(name string) { t.instance.Name = name }

// workflow tells something that happened so many seconds after the beginning.
func (t *teller) workflow(change string, second int, data map[string]any) {
	all := map[string]any{
		"instanceId": t.instance.ID, "workflowName": t.instance.Name, "workflowNamespace": t.instance.Namespace,
		"workflowVersion": t.instance.Version, "lastUpdateTime": t.offset(second),
	}
	if change == "started" {
		all["startTime"] = t.offset(second)
	}
	t.tell("workflow."+change, second, all, data)
}

func (t *teller) task(change string, second int, position string, data map[string]any) {
	// Some engines make a new execution id for every event; the position is what counts.
	t.tell("task."+change, second, map[string]any{
		"instanceId": t.instance.ID, "taskPosition": position, "taskExecutionId": fmt.Sprintf("%s/%d", t.instance.ID, t.told),
	}, data)
}

func (t *teller) tell(change string, second int, data, more map[string]any) {
	maps.Copy(data, more)
	t.told++
	event, err := json.Marshal(map[string]any{
		"specversion": "1.0", "type": "io.serverlessworkflow." + change + ".v1", "source": "/workflow/executions/" + t.instance.ID,
		"id": uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%d", t.instance.ID, t.told)), "time": t.utc(second),
		"datacontenttype": "application/json", "data": data,
	})
	if err != nil {
		panic(fmt.Sprintf("encode an event of maps and texts: %v", err))
	}
	t.records = append(t.records, dataindex.Record{
		Key: &t.instance.ID, Headers: [][2]string{{"content-type", "application/cloudevents+json"}}, Value: string(event),
	})
}

// ends and done say how the story ends, for the instance and for a task.
func (t *teller) ends(status string, second int, output string) {
	end := t.at(second)
	t.instance.Status, t.instance.End, t.instance.Output = status, &end, json.RawMessage(output)
}

func (t *teller) done(position string, iteration, attempt, from, to int, output string) {
	end := t.at(to)
	t.instance.Tasks = append(t.instance.Tasks, dataindex.Task{
		Position: position, Iteration: iteration, Attempt: attempt, Name: path.Base(position), Status: "COMPLETED",
		Start: t.at(from), End: &end, Output: json.RawMessage(output),
	})
}

func (t *teller) at(second int) time.Time { return t.began.Add(time.Duration(second) * time.Second) }

// The ways in which a time is told: with an offset, in UTC, in seconds and in
// milliseconds since 1970.
func (t *teller) offset(second int) string {
	return t.at(second).In(time.FixedZone("", -3*60*60)).Format("2006-01-02T15:04:05.000000-07:00")
}
func (t *teller) utc(second int) string   { return t.at(second).Format(time.RFC3339) }
func (t *teller) epoch(second int) int64  { return t.at(second).Unix() }
func (t *teller) millis(second int) int64 { return t.at(second).UnixMilli() }
