package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

var (
	// ErrClosed is returned by what is used after its Close.
	ErrClosed = errors.New("kafka: closed")
	// ErrHeldBack is returned for a record that was not sent because an earlier
	// one of the same topic and key, in the same call, was not published.
	// Sending it would have broken the order of the key.
	ErrHeldBack = errors.New("kafka: held back behind an earlier record of the same key")
	// ErrNotAssigned is returned for a partition that this subscriber does not
	// hold now.
	ErrNotAssigned = errors.New("kafka: partition is not assigned to this subscriber")
	// ErrTopicReplaced is the cause of a stopped partition whose topic was
	// deleted and created again: offsets of the old topic mean nothing in the
	// new one.
	ErrTopicReplaced = errors.New("kafka: the topic was deleted, or deleted and created again")

	errStaleGeneration = errors.New("kafka: the group has moved on since these offsets were gathered")
	errRevoked         = errors.New("kafka: partition revoked and not drained in time")
	errLost            = errors.New("kafka: partition lost")
)

// OutOfRangeError is the cause of a stopped partition: the offset to read next
// does not lie in the log, because retention or a truncation has removed it.
type OutOfRangeError struct {
	Topic     string
	Partition int32
	// Offset is what was to be read next.
	Offset int64
	// Low and High are the first offset in the log and the one after the last.
	// Both are -1 when the broker could not be asked.
	Low, High int64
	// Err is what the broker or the client reported.
	Err error
}

// Error names the partition, the offset and what the log holds.
func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("kafka: offset %d of %s/%d does not lie in the log [%d, %d)", e.Offset, e.Topic, e.Partition, e.Low, e.High)
}

// Unwrap returns what the broker or the client reported.
func (e *OutOfRangeError) Unwrap() error { return e.Err }

// IsRejected reports whether err, as returned for a record by PublishRecords,
// means that the brokers were reached and refused that very record, so that
// sending it again as it is will meet the same answer. Everything else means
// "not now": an outage, a timeout, a record held back.
func IsRejected(err error) bool {
	if isRecordFault(err) {
		return true
	}
	for _, rejection := range []error{
		// The topic does not exist: reported after several metadata requests
		// said so. Waiting does not create it, we never auto-create. A topic that is
		// known under another id, UNKNOWN_TOPIC_ID, is not among these: it was made
		// anew, and the next call writes to that.
		kerr.UnknownTopicOrPartition, kerr.InvalidTopicException,
		// The account may not write there. CLUSTER_AUTHORIZATION_FAILED is not
		// among these: it condemns the account and not the record.
		kerr.TopicAuthorizationFailed, kerr.PolicyViolation,
	} {
		if errors.Is(err, rejection) {
			return true
		}
	}
	return false
}

// IsTooLarge reports whether err, as returned for a record by PublishRecords, means
// that the record is larger than its topic or the producer allows.
func IsTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// isRecordFault reports whether err blames the content of a record. A broker
// answers for a whole batch, so innocent neighbours carry such an error too
// until the publisher has told them apart.
func isRecordFault(err error) bool {
	for _, fault := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge,
		// A broker's validation: no key on a compacted topic, a timestamp out
		// of bounds, an interceptor.
		kerr.InvalidRecord, kerr.InvalidTimestamp,
		// Older brokers say "corrupt" where newer ones say "invalid".
		kerr.CorruptMessage,
		kerr.UnsupportedForMessageFormat,
	} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}
