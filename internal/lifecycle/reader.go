package lifecycle

import (
	"encoding/json"
	"strings"

	"github.com/millrace/millrace/topics"
)

// ReadRecord is Read for the event in a record.
func ReadRecord(r topics.Record) (Event, Skip, error) {
	env, err := topics.DecodeRecord(r)
	if err != nil {
		return Event{}, "", err
	}
	return Read(env)
}

// Read returns what an event tells of a workflow or a task, or why it tells nothing of
// either. Every error is a *topics.DecodeError. The event shares memory with the data
// of env.
func Read(env topics.Envelope) (Event, Skip, error) {
	e, skip, err := route(env.Type)
	if err != nil || skip != "" {
		return Event{}, skip, err
	}
	if env.Time.IsZero() {
		return Event{}, "", defect(topics.CodeMissingAttribute, "time", "is missing")
	}
	data, err := dataOf(env)
	if err != nil {
		return Event{}, "", err
	}
	if data.present(instanceID) {
		err = data.readFlat(&e)
	} else {
		err = data.readNested(&e)
	}
	if err == nil {
		err = e.complete(data, env)
	}
	if err != nil {
		return Event{}, "", err
	}
	return e, "", nil
}

// route tells from the type what an event is about.
func route(eventType string) (e Event, skip Skip, err error) {
	rest, isWorkflow := strings.CutPrefix(eventType, topics.WorkflowLifecyclePrefix)
	e.Kind = Workflow
	if !isWorkflow {
		var isTask bool
		if rest, isTask = strings.CutPrefix(eventType, topics.TaskLifecyclePrefix); !isTask {
			return Event{}, SkipOtherType, nil
		}
		e.Kind = Task
	}
	change, version, versioned := strings.Cut(rest, ".")
	e.Change = Change(change)
	e.Status = statusOf(e.Change)
	if e.Status == "" && e.Change != StatusChanged {
		return Event{}, SkipUnknownChange, nil
	}
	if versioned && version != "v1" {
		return Event{}, "", defect(CodeUnsupportedTypeVersion, "type", "has another version than v1")
	}
	return e, "", nil
}

// dataOf returns the members of an event's data.
func dataOf(env topics.Envelope) (*members, error) {
	if len(env.Data) == 0 || string(env.Data) == "null" {
		return nil, defect(CodeMissingData, "data", "is missing")
	}
	if err := topics.CheckJSON(env); err != nil {
		return nil, err
	}
	if !json.Valid(env.Data) {
		return nil, defect(topics.CodeMalformedJSON, "data", "is not JSON")
	}
	return readMembers(env.Data)
}

// complete checks what every event must have, and fills in what follows from the rest.
func (e *Event) complete(data *members, env topics.Envelope) error {
	if e.Status == "" {
		word, err := data.text(status)
		if err != nil {
			return err
		}
		known, ok := ParseStatus(word)
		if !ok {
			return defect(CodeInvalidStatus, "/status", "is missing or not known")
		}
		e.Status = known
	}
	// Before version 7.22 the Java SDK calls the retry of a task task.started too, and
	// says what it is by its time.
	if e.Shape == Nested && e.Change == Started && data.present(retriedAt) {
		e.Change = Retried
	}
	now := Round(env.Time)
	// Engines that send a bare type and nothing else still mean that it happened now.
	if e.Change == Started && e.Start.IsZero() {
		e.Start = now
	}
	if e.Change != StatusChanged && Final(e.Status) && e.End.IsZero() {
		e.End = now
	}
	if e.LastUpdate.IsZero() {
		e.LastUpdate = now
	}
	for _, text := range []*string{&e.Namespace, &e.Name, &e.Version, &e.TaskName, &e.TaskExecutionID} {
		if len(*text) > MaxNameBytes {
			*text = strings.ToValidUTF8((*text)[:MaxNameBytes], "")
		}
	}
	for _, doc := range []*json.RawMessage{&e.Input, &e.Output} {
		stored, altered := Storable(*doc)
		*doc, e.Altered = stored, e.Altered || altered
	}
	return nil
}

// normalPosition returns a position as it is compared: engines write it as a path
// (do/0/greet), as a JSON pointer (/do/0/greet), or as a URI of only a fragment.
func normalPosition(position string) string {
	return strings.TrimLeft(strings.TrimPrefix(position, "#"), "/")
}

// taskName returns the name of the task at a position: the last token of the pointer
// that has an index before it. What follows it is within the task: the SDK appends "do"
// and "branch" to the position of a task that has others in it.
func taskName(position string) string {
	tokens := strings.Split(position, "/")
	for i := len(tokens) - 1; i > 0; i-- {
		if index := tokens[i-1]; index != "" && tokens[i] != "" && strings.Trim(index, "0123456789") == "" {
			return strings.NewReplacer("~1", "/", "~0", "~").Replace(tokens[i])
		}
	}
	return ""
}
