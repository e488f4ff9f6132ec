package app

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/pipeline"
)

// driver is a subscriber of the transport, by whatever client: what it hands out,
// what it says of its partitions, and what it does when an operator asks.
type driver interface {
	message.Subscriber
	Status() []kafka.PartitionStatus
	Pause()
	Resume()
	RetryNow(topic string, partition int32) error
	Seek(ctx context.Context, topic string, partition int32, offset int64) error
	Retake(ctx context.Context, topic string, partition int32) error
	RefreshEnds(ctx context.Context) error
}

// newSubscriber joins the group of one consumer by the driver that is configured.
func newSubscriber(
	name string, client kafka.Config, sub pipeline.Subscription, sc kafka.SubscriberConfig,
) (driver, error) {
	if name != configs.DriverSarama {
		return kafka.NewSubscriber(client, sc)
	}
	if !sub.Transactional {
		sc.BatchSize, sc.Gather = 1, 0 // a batch of one is one, too
	} else if sub.BatchSize > 1 {
		return nil, fmt.Errorf("the consumer takes batches (OnBatchTx, up to %d records), which kafka.driver: sarama cannot hand out: "+
			"set kafka.driver to franz, or leave out what the consumer belongs to with --roles (sarama can be used with api, worker and relay), "+
			"or if the consumer is yours, make it an OnTx", sub.BatchSize)
	}
	client.Logger.Info("consumer uses the stock driver", "driver", name, "consumer", sub.Consumer)
	return newStockSubscriber(client, sc)
}
