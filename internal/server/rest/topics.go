package rest

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/topics"
)

// TopicLister is the part of kafka.Admin that the list of topics needs.
type TopicLister interface {
	ListTopics(ctx context.Context, names ...string) ([]kafka.Topic, error)
}

// BrokerTopics is Topics over a broker.
type BrokerTopics struct {
	broker TopicLister
	naming topics.Naming
	specs  []topics.Spec
}

// NewBrokerTopics returns topics of the pipeline as the broker knows them.
func NewBrokerTopics(broker TopicLister, naming topics.Naming, specs []topics.Spec) BrokerTopics {
	return BrokerTopics{broker, naming, specs}
}

// List implements Topics. A topic that does not exist yet has no partitions.
func (t BrokerTopics) List(ctx context.Context) ([]Topic, error) {
	// All topics, because a broker answers a question for one that does not exist
	// with an error for the whole.
	found, err := t.broker.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	partitions := make(map[string]int32, len(found))
	for _, f := range found {
		partitions[f.Name] = int32(f.Partitions)
	}
	out := make([]Topic, len(t.specs))
	for i, spec := range t.specs {
		name := t.naming.Physical(spec.Topic)
		out[i] = Topic{
			Topic: string(spec.Topic), Name: name, Partitions: partitions[name],
			Retention: topics.Duration(spec.Retention), Key: spec.Key, Purpose: spec.Purpose,
		}
	}
	return out, nil
}
