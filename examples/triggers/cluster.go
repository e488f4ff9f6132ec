package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cluster is Kafka as those see it who write messages: they know nothing of Millrace.
type cluster struct {
	client *kgo.Client
	admin  *kadm.Client
}

func dial(brokers []string) (*cluster, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(place)))
	if err != nil {
		return nil, fmt.Errorf("connect to the brokers: %w", err)
	}
	return &cluster{client, kadm.NewClient(client)}, nil
}

// anywhere is the partition of a record that goes where its key leads.
const anywhere = -1

// place says where records of a topic go: to the partition that they name, or to that of
// their key.
func place(string) func(*kgo.Record, int) int {
	byKey := kgo.StickyKeyPartitioner(nil).ForTopic("")
	return func(r *kgo.Record, partitions int) int {
		if r.Partition == anywhere {
			return byKey.Partition(r, partitions)
		}
		return int(r.Partition)
	}
}

func (c *cluster) close() { c.client.Close() }

func (c *cluster) create(ctx context.Context, topic string, partitions int32) error {
	if _, err := c.admin.CreateTopic(ctx, partitions, -1, nil, topic); err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

// send writes records in their order.
func (c *cluster) send(ctx context.Context, records ...*kgo.Record) error {
	if err := c.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("send messages: %w", err)
	}
	return nil
}

func (c *cluster) deleteTopics(ctx context.Context, topics ...string) error {
	deleted, err := c.admin.DeleteTopics(ctx, topics...)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	return nil
}

// deleteGroup says whether the group is gone. One that has members cannot be deleted.
func (c *cluster) deleteGroup(ctx context.Context, group string) bool {
	_, err := c.admin.DeleteGroup(ctx, group)
	return err == nil
}
