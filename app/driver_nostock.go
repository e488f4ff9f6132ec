//go:build nosarama

package app

import (
	"errors"

	"github.com/millrace/millrace/internal/kafka"
)

func newStockSubscriber(kafka.Config, kafka.SubscriberConfig) (driver, error) {
	return nil, errors.New("this program was built without kafka.driver: sarama (build tag nosarama): set it to franz, or build without the tag")
}
