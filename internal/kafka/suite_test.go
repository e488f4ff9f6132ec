package kafka_test

import (
	"testing"

	"github.com/millrace/millrace/internal/kafka/kafkatest"
)

func TestSuiteOnEmbeddedBroker(t *testing.T) { kafkatest.Run(t, kafkatest.EmbeddedBroker(t)) }

func TestSuiteOnRealKafka(t *testing.T) { kafkatest.Run(t, kafkatest.RealBroker(t)) }

func TestWatermillSuiteOnEmbeddedBroker(t *testing.T) { watermillSuite(t, kafkatest.EmbeddedBroker) }

func TestWatermillSuiteOnRealKafka(t *testing.T) { watermillSuite(t, kafkatest.RealBroker) }

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
