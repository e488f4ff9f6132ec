package stock_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/kafkatest"
	"github.com/millrace/millrace/internal/kafka/stock"
)

func driver() kafkatest.Driver {
	return kafkatest.Driver{
		NewSubscriber: func(cfg kafka.Config, sc kafka.SubscriberConfig) (kafkatest.Subscriber, error) {
			return stock.NewSubscriber(cfg, sc)
		},
		NewPublisher: func(cfg kafka.Config) (message.Publisher, error) {
			return stock.NewPublisher(cfg, stock.PublisherConfig{})
		},
		SingleRecords: true,
	}
}

func embeddedBroker(t *testing.T) kafkatest.Broker {
	broker := kafkatest.EmbeddedBroker(t)
	broker.Driver = driver()
	return broker
}

func realBroker(t *testing.T) kafkatest.Broker {
	broker := kafkatest.RealBroker(t)
	broker.Driver = driver()
	return broker
}

func TestSuiteOnEmbeddedBroker(t *testing.T) { kafkatest.Run(t, embeddedBroker(t)) }

func TestSuiteOnRealKafka(t *testing.T) { kafkatest.Run(t, realBroker(t)) }

func TestWatermillSuiteOnEmbeddedBroker(t *testing.T) { watermillSuite(t, embeddedBroker) }

func TestWatermillSuiteOnRealKafka(t *testing.T) { watermillSuite(t, realBroker) }

func watermillSuite(t *testing.T, start func(*testing.T) kafkatest.Broker) {
	broker := start(t)
	t.Run("one partition", func(t *testing.T) { kafkatest.RunWatermill(t, broker, 1) })
	t.Run("eight partitions", func(t *testing.T) { kafkatest.RunWatermill(t, broker, 8) })
	t.Run("reconnect", func(t *testing.T) {
		if raceEnabled {
			t.Skip("the test itself is not free of races; ours covers restarts in race builds")
		}
		kafkatest.RunWatermillReconnect(t, broker, 8)
	})
}
