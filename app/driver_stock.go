//go:build !nosarama

package app

import (
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/stock"
)

func newStockSubscriber(client kafka.Config, sc kafka.SubscriberConfig) (driver, error) {
	return stock.NewSubscriber(client, sc)
}
