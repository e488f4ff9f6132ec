package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/millrace/millrace/internal/delivery"
)

// This file is what another driver of the transport shares with the one of this
// package, so that both read the same settings and give records and messages the
// same form.

// WithDefaults returns a copy in which every field that was left out has its
// default.
func (c SubscriberConfig) WithDefaults(base Config) SubscriberConfig { return c.withDefaults(base) }

// Validate reports every fault of c at once, given the settings of the client.
func (c SubscriberConfig) Validate(base Config) error { return c.validate(base) }

// Backoff is the pause before the try after the given one, which counts from 1.
func (c SubscriberConfig) Backoff(attempts int) time.Duration { return c.backoff(attempts) }

// Load reads the files that the settings name.
func (c TLSConfig) Load() (*tls.Config, error) { return c.load() }

// ReadToken returns the bearer token as it stands now.
func (c SASLConfig) ReadToken() (string, error) { return c.readToken() }

// NewMessage returns the Watermill message that stands for d. Its payload and
// metadata are those of the first record.
func NewMessage(ctx context.Context, d *delivery.Delivery) *message.Message {
	return newMessage(ctx, d)
}

// Committed returns, by partition, what group has committed in a topic; nothing if
// there is no such group.
func (a *Admin) Committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	responses, err := a.admin.FetchOffsetsForTopics(ctx, group, topic)
	if err == nil {
		err = responses.Error()
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("offsets of group %s in %s: %w", group, topic, err)
	}
	committed := map[int32]int64{}
	for id, offset := range responses[topic] {
		if offset.At >= 0 {
			committed[id] = offset.At
		}
	}
	return committed, nil
}
