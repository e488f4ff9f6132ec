package jobstest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/internal/jobs"
	"github.com/millrace/millrace/topics"
)

// errAway is what a broker answers that cannot be reached.
var errAway = errors.New("the broker is away")

// ErrRejected is what it answers for a record that it refuses.
var ErrRejected = errors.New("the record is rejected")

// Broker is Kafka as far as jobs know it, in memory: topics that have to be created, and
// one group of workers for each of them, which gets each record once.
type Broker struct {
	mu     sync.Mutex
	topics map[string][]topics.Record
	read   map[string]int
	away   bool
	reject func(topics.Record) bool
	// changed is closed and replaced whenever there is something new.
	changed chan struct{}
}

// NewBroker returns a broker without topics.
func NewBroker() *Broker {
	return &Broker{topics: make(map[string][]topics.Record), read: make(map[string]int), changed: make(chan struct{})}
}

// Away makes the broker unreachable, or reachable again.
func (b *Broker) Away(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// Reject has the broker refuse records; nil: none.
func (b *Broker) Reject(judge func(topics.Record) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reject = judge
}

// EnsureJobTopics implements jobs.Topics.
func (b *Broker) EnsureJobTopics(_ context.Context, names []string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return errAway
	}
	for _, name := range names {
		if b.topics[name] == nil {
			b.topics[name] = []topics.Record{}
		}
	}
	return nil
}

// Topics returns the names of the topics that were created.
func (b *Broker) Topics() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name := range b.topics {
		names = append(names, name)
	}
	return names
}

// PublishRecords implements the publisher of the relay. Records of topics of jobs that
// were not created are refused; what goes elsewhere is dropped.
func (b *Broker) PublishRecords(_ context.Context, records []topics.Record) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(records))
	for i, r := range records {
		known, ok := b.topics[r.Topic]
		switch {
		case b.away:
			errs[i] = errAway
		case len(r.Topic) < len(jobs.TopicPrefix) || r.Topic[:len(jobs.TopicPrefix)] != jobs.TopicPrefix:
		case !ok, b.reject != nil && b.reject(r):
			errs[i] = fmt.Errorf("topic %s: %w", r.Topic, ErrRejected)
		default:
			b.topics[r.Topic] = append(known, r)
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return errs
}

// Records returns all records of a job type.
func (b *Broker) Records(jobType string) []topics.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]topics.Record(nil), b.topics[string(jobs.TopicOf(jobType))]...)
}

// Claim gives out the records of some job types that no worker of their groups has had,
// as the jobs that they say. It has the shape of jobs.Store.Claim.
func (b *Broker) Claim(ctx context.Context, r jobs.ClaimRequest) ([]jobs.Job, error) {
	over := time.NewTimer(r.Wait)
	defer over.Stop()
	for {
		list, changed, err := b.next(r)
		if err != nil || len(list) > 0 {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
			return nil, nil
		case <-changed:
		}
	}
}

func (b *Broker) next(r jobs.ClaimRequest) ([]jobs.Job, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []jobs.Job
	for _, t := range r.Types {
		topic := string(jobs.TopicOf(t))
		for len(list) < r.Max && b.read[topic] < len(b.topics[topic]) {
			job, err := Decode(b.topics[topic][b.read[topic]])
			if err != nil {
				return nil, nil, err
			}
			b.read[topic]++
			job.WorkerID = r.WorkerID
			list = append(list, job)
		}
	}
	return list, b.changed, nil
}

// Decode reads a record that carries a job, by the numbers of the fields alone.
func Decode(r topics.Record) (jobs.Job, error) {
	var j jobs.Job
	value := r.Value
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return jobs.Job{}, protowire.ParseError(n)
		}
		value = value[n:]
		var number uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(value)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(value)
		default:
			n = protowire.ConsumeFieldValue(field, kind, value)
		}
		if n < 0 {
			return jobs.Job{}, protowire.ParseError(n)
		}
		value = value[n:]
		if err := decodeField(&j, int(field), number, data); err != nil {
			return jobs.Job{}, fmt.Errorf("field %d: %w", field, err)
		}
	}
	j.Status = jobs.Locked
	return j, decodeHeaders(&j, r)
}

func decodeField(j *jobs.Job, field int, number uint64, data []byte) (err error) {
	switch field {
	case 10:
		j.ID, err = uuid.ParseBytes(data)
	case 11:
		j.InstanceID, err = uuid.ParseBytes(data)
	case 13:
		j.JobType = string(data)
	case 20:
		j.RetriesRemaining = int(number)
	case 30:
		j.Variables = data
	}
	return err
}

func decodeHeaders(j *jobs.Job, r topics.Record) (err error) {
	if token, ok := r.Header(jobs.HeaderToken); ok {
		if j.Token, err = strconv.ParseInt(string(token), 10, 64); err != nil {
			return err
		}
	}
	if attempt, ok := r.Header(jobs.HeaderAttempt); ok {
		j.Attempt, err = strconv.Atoi(string(attempt))
	}
	return err
}
