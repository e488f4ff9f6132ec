package stock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/kafka/kafkatest"
)

func TestMain(m *testing.M) {
	// The metrics of sarama have one clock for all, which nobody can stop.
	kafkatest.Main(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
