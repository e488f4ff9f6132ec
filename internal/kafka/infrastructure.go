package kafka

import (
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// IsInfrastructure reports whether err is about the brokers or the way to them:
// it will go away by itself or by an operator's hand, and no record is to blame.
func IsInfrastructure(err error) bool {
	if err == nil || IsRejected(err) {
		return false
	}
	for _, known := range []error{
		// Ours: what was held back had done nothing wrong itself.
		ErrHeldBack, ErrClosed,
		// The client gave up on a record: too long, too often, or no room for it.
		kgo.ErrRecordTimeout, kgo.ErrRecordRetries, kgo.ErrMaxBuffered, kgo.ErrClientClosed,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	// Whatever else a broker answers is about its own state: not the leader, not
	// enough replicas, storage. IsRejected has taken out what is about a record.
	var broker *kerr.Error
	if errors.As(err, &broker) {
		return true
	}
	// Connections that fail are retried inside the client; what comes out of it is
	// final for this call only.
	var network net.Error
	return errors.As(err, &network)
}
