package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	stock "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/delivery"
)

// forwarderTopic is the table that the forwarder reads.
const forwarderTopic = "bench_forwarder"

// rowsOf is the schema of stock rows, with payloads as bytes.
var rowsOf = wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}

// fillForwarder writes a pass of events as the forwarder wants them, in one
// transaction.
func (t *track) fillForwarder(ctx context.Context) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := wsql.NewPublisher(tx, wsql.PublisherConfig{SchemaAdapter: rowsOf}, nil)
	if err != nil {
		return err
	}
	publisher := forwarder.NewPublisher(rows, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
	for left := t.events; left > 0; left -= fillChunk {
		messages := make([]*message.Message, min(left, fillChunk))
		for i := range messages {
			r := t.maker.Next()
			msg := message.NewMessage(watermill.NewUUID(), r.Value)
			msg.Metadata.Set(delivery.MetadataPartitionKey, string(r.Key))
			for _, h := range r.Headers {
				msg.Metadata.Set(h.Key, string(h.Value))
			}
			messages[i] = msg
		}
		if err := publisher.Publish(t.maker.Topic, messages...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// startForwarder runs Watermill's forwarder with settings under which it loses
// nothing, and looks for rows as often as ours does at the least.
func (b *bench) startForwarder(ctx context.Context) (stop func() error, err error) {
	subscriber, err := wsql.NewSubscriber(b.db, wsql.SubscriberConfig{
		SchemaAdapter: rowsOf, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		PollInterval: 100 * time.Millisecond,
	}, nil)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(forwarderTopic); err != nil {
		return nil, err
	}
	config := stock.DefaultSaramaSyncPublisherConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Compression = sarama.CompressionSnappy
	config.Net.MaxOpenRequests = 1
	publisher, err := stock.NewPublisher(stock.PublisherConfig{
		Brokers: b.Brokers, OverwriteSaramaConfig: config,
		Marshaler: stock.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string, error) {
			return msg.Metadata.Get(delivery.MetadataPartitionKey), nil
		}),
	}, nil)
	if err != nil {
		return nil, err
	}
	f, err := forwarder.NewForwarder(subscriber, publisher, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic})
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = func() error { return errors.Join(f.Close(), <-ended, publisher.Close(), subscriber.Close()) }
	select {
	case <-f.Running():
		return stop, nil
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), stop())
	}
}
