package kafka_test

import (
	"testing"

	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/kafka/kafkatest"
)

func listenOn(addr string) func(*embedded.BrokerConfig) {
	return func(cfg *embedded.BrokerConfig) { cfg.Listen = addr }
}

func TestSuiteOnEmbeddedBroker(t *testing.T) { kafkatest.Run(t, fakeBroker(t)) }

func TestSuiteOnRealKafka(t *testing.T) { kafkatest.Run(t, realBroker(t)) }

func TestWatermillSuiteOnEmbeddedBroker(t *testing.T) { watermillSuite(t, fakeBroker) }

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
