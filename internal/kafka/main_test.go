package kafka_test

import (
	"testing"

	"github.com/millrace/millrace/internal/kafka/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }
