package app

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/pipeline"
)

// newSubscriber joins the group of one consumer by the driver that is configured.
func newSubscriber(
	driver string, client kafka.Config, sub pipeline.Subscription, sc kafka.SubscriberConfig,
) (message.Subscriber, error) {
	if driver != configs.DriverSarama {
		return kafka.NewSubscriber(client, sc)
	}
	if sub.BatchSize > 1 {
		return nil, fmt.Errorf("the consumer takes batches (OnBatchTx, up to %d records), which kafka.driver: sarama cannot hand out: "+
			"set kafka.driver to franz, or leave out what the consumer belongs to with --roles (sarama can be used with api, worker and relay), "+
			"or if the consumer is yours, make it an OnTx", sub.BatchSize)
	}
	client.Logger.Info("consumer uses the stock driver", "driver", driver, "consumer", sub.Consumer)
	return newStockSubscriber(client, sc)
}
