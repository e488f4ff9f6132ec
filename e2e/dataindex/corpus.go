// Package dataindex holds the proof of the data index with software that is not ours:
// a Java program (java/) that runs workflows in the CNCF Serverless Workflow Java SDK
// and publishes the lifecycle events that the SDK makes, and recordings of what it
// published (corpus/), so that readers of such events can be tested without Java.
//
// A recording is two files: the records as they were sent, and what the SDK itself
// said of each instance and task at the end, taken from its interfaces and not from the
// events. The recordings differ in how an event is put into a record, and each is a
// run of its own.
//
// The program runs by hand with `go run ./e2e/dataindex/publish`, which also records
// anew; docs/chaos.md has the whole proof.
package dataindex

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/topics"
)

//go:embed corpus/*.jsonl
var corpus embed.FS

// The encodings of the recordings, which are also the modes of the Java program.
const (
	// Bare is structured JSON without headers and without a key, as Quarkus Flow first
	// published it.
	Bare = "bare"
	// Structured has the content-type header of the Kafka binding; the key is the
	// instance.
	Structured = "structured"
	// Binary has the attributes in headers and, since the SDK says none, no content
	// type; the key is the instance.
	Binary = "binary"
)

// Encodings returns all of them.
func Encodings() []string { return []string{Bare, Structured, Binary} }

// Record is one record as it was sent.
type Record struct {
	// Key is nil where the record had none.
	Key     *string     `json:"key"`
	Headers [][2]string `json:"headers"`
	Value   string      `json:"value"`
}

// Of returns the record as one to be published to a topic.
func (r Record) Of(topic string) topics.Record {
	out := topics.Record{Topic: topic, Value: []byte(r.Value)}
	if r.Key != nil {
		out.Key = []byte(*r.Key)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, topics.Header{Key: h[0], Value: []byte(h[1])})
	}
	return out
}

// Instance is what the SDK said of one instance when the program ended.
type Instance struct {
	ID        string          `json:"id"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Version   string          `json:"version"`
	Status    string          `json:"status"`
	Start     time.Time       `json:"start"`
	End       *time.Time      `json:"end"`
	Output    json.RawMessage `json:"output"`
	Error     *Error          `json:"error"`
	Tasks     []Task          `json:"tasks"`
}

// Task is what the SDK said of one position. The SDK's events do not tell the runs of
// a position apart, so a loop or a retry is one task: when it began first, and how it
// ended last.
type Task struct {
	Position string `json:"position"`
	// Iteration and Attempt are 0 throughout in events of the SDK.
	Iteration int             `json:"iteration"`
	Attempt   int             `json:"attempt"`
	Name      string          `json:"name"`
	Runs      int             `json:"runs"`
	Status    string          `json:"status"`
	Start     time.Time       `json:"start"`
	End       *time.Time      `json:"end"`
	Output    json.RawMessage `json:"output"`
	Error     *Error          `json:"error"`
}

// Error is the one that an instance or task faulted with last.
type Error struct {
	Type     string  `json:"type"`
	Status   *int    `json:"status"`
	Title    *string `json:"title"`
	Detail   *string `json:"detail"`
	Instance *string `json:"instance"`
}

// Recording is a run of the Java program.
type Recording struct {
	Encoding  string
	Records   []Record
	Instances []Instance
}

// Recorded returns the recording in an encoding. It panics where there is none: the
// recordings are part of the program.
func Recorded(encoding string) Recording {
	r, err := read(encoding, func(name string) ([]byte, error) { return corpus.ReadFile("corpus/" + name) })
	if err != nil {
		panic(fmt.Sprintf("dataindex: read recording: %v", err))
	}
	return r
}

// read reads the two files of a recording.
func read(encoding string, file func(name string) ([]byte, error)) (r Recording, err error) {
	r.Encoding = encoding
	records, err := file(encoding + ".jsonl")
	if err != nil {
		return r, err
	}
	if r.Records, err = lines[Record](records); err != nil {
		return r, fmt.Errorf("records: %w", err)
	}
	instances, err := file(encoding + ".truth.jsonl")
	if err != nil {
		return r, err
	}
	if r.Instances, err = lines[Instance](instances); err != nil {
		return r, fmt.Errorf("instances: %w", err)
	}
	return r, nil
}

func lines[T any](text []byte) (all []T, err error) {
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, len(text)+1)
	for in.Scan() {
		dec := json.NewDecoder(bytes.NewReader(in.Bytes()))
		dec.DisallowUnknownFields()
		var one T
		if err := dec.Decode(&one); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(all)+1, err)
		}
		all = append(all, one)
	}
	return all, in.Err()
}
