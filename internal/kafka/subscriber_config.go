package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StartFrom is where a group begins in a partition for which it has committed
// nothing yet.
type StartFrom string

const (
	// StartEarliest begins with the oldest record: nothing is skipped.
	StartEarliest StartFrom = "earliest"
	// StartLatest begins with what is published after the partition was
	// assigned for the first time.
	StartLatest StartFrom = "latest"
)

// SubscriberConfig tunes a Subscriber. Only Group is required.
type SubscriberConfig struct {
	// Group is the consumer group. Another name is another group, which reads
	// its topics from the start.
	Group string
	// BatchSize is how many records of one partition a Delivery may hold; what
	// is there is handed out, nothing waits for a batch to fill. Batches begin small,
	// double while they take less than a second, and halve when they take more than
	// five or fail. Defaults to 1.
	BatchSize int
	// BatchBytes is how large a Delivery of several records may become. A
	// single larger record is handed out alone. Defaults to 4 MiB.
	BatchBytes int
	// Gather is how long the subscriber waits before it polls again after a poll
	// that brought records, but fewer than BatchSize: what comes meanwhile is
	// fetched and handed out together. The first records after a quiet time are
	// handed out at once, and a backlog is not slowed down. Defaults to 0.
	Gather time.Duration
	// PrefetchRecords and PrefetchBytes bound what is fetched ahead per
	// partition. Once a bound is crossed the partition is paused until half is
	// consumed; fetches already under way then, of up to 1 MiB compressed each,
	// are still kept. Default to 4 096 records, or four batches if that is more,
	// and 8 MiB.
	PrefetchRecords int
	PrefetchBytes   int
	// PrefetchBoth pauses a partition only once both bounds are exceeded, and until one
	// of them is down to a half: many small records, or a few large ones, are fetched
	// ahead then.
	PrefetchBoth bool
	// FetchBytes bounds what a broker sends in answer to one fetch, compressed. A larger
	// batch of records is fetched all the same, alone. Defaults to the client's 50 MiB,
	// of which up to 1 MiB per partition.
	FetchBytes int
	// InstanceID makes this a static member of the group: whoever joins under the same
	// id has the partitions at once and without a rebalance, and the one before is
	// fenced. Close leaves the group all the same. Empty for a dynamic member.
	InstanceID string
	// ReadCommitted leaves out what belongs to transactions that were aborted, and waits
	// for those that are open. Where a transaction ends nothing is handed out; the
	// position goes past it.
	ReadCommitted bool
	// RememberTopics notes with every committed offset which topic it is of. A
	// partition whose topic was deleted and created again while nobody looked then
	// begins at its first record, instead of an offset that means nothing there:
	// PartitionStatus.Renewed says so. For groups whose offset is the truth; where the
	// Assigned hook names offsets it is not needed.
	RememberTopics bool
	// StartFrom defaults to StartEarliest.
	StartFrom StartFrom
	// Hooks connect the subscription to offsets kept elsewhere. Optional.
	Hooks Hooks
	// HookTimeout bounds one call of a hook. Defaults to 5 seconds.
	HookTimeout time.Duration
	// BackoffInitial and BackoffMax bound the pause after a nack, which doubles
	// from one to the other and goes on for ever. Default to 1 and 60 seconds.
	BackoffInitial time.Duration
	BackoffMax     time.Duration
	// DrainTimeout is how long a Delivery in flight may go on when its partition
	// is revoked or the subscriber closes, before its context ends. It must be
	// shorter than RebalanceTimeout and SessionTimeout. Defaults to 10 seconds, or
	// two thirds of the shorter of these where that is less.
	DrainTimeout time.Duration
	// CommitInterval is how long acked offsets are gathered before they are
	// committed to the group; revoke and Close commit at once. Defaults to 200
	// milliseconds.
	CommitInterval time.Duration
	// Observer is told of every change of a partition's status. Optional.
	Observer Observer
	// Registerer takes the subscriber's metrics. Nil means none.
	Registerer prometheus.Registerer
	// Clock defaults to the system's.
	Clock Clock
	// Logger defaults to that of the Config.
	Logger *slog.Logger
}

// Hooks connect a subscription to offsets that are kept elsewhere, such as in
// the database that also holds the effects. Each is optional and may be called
// concurrently for different partitions.
type Hooks struct {
	// Assigned is called before the first record of a newly assigned partition
	// is fetched. committed is the group's offset, or -1 if it has none. It
	// returns the offset to start at, or -1 to keep the group's, and the epoch
	// that every Delivery of this ownership will carry. While it fails the
	// partition is stalled with its error as the cause, and it is called again.
	Assigned func(ctx context.Context, topic string, topicID [16]byte, partition int32, committed int64) (start, epoch int64, err error)
	// Revoked is called when a partition is no longer this subscriber's, after
	// its last Delivery ended and its offset was committed. lost says that it
	// was taken without asking, so that another member may already hold it.
	Revoked func(ctx context.Context, topic string, partition int32, epoch int64, lost bool)
	// Fenced reports whether a Delivery was nacked because its epoch is not the
	// partition's any more. After the pause of a stall, Assigned is asked again
	// then, as long as the group gives the partition to this member: the position
	// was moved meanwhile, or a former owner came late.
	Fenced func(cause error) bool
	// Connected is called with the outcome of every attempt to connect to a broker, TLS
	// and SASL included. It must return soon.
	Connected func(Connection)
	// Joined is called with nil whenever the group has taken this member in, and with
	// the error that threw it out or kept it from joining, which goes on being tried.
	// It must return soon.
	Joined func(err error)
}

// Connection is an attempt to connect to a broker.
type Connection struct {
	// Broker is the broker's number, or negative where only its address is known, as of
	// those that the Config names.
	Broker  int32
	Address string
	// Err is nil when the broker can be talked to.
	Err error
}

func (c SubscriberConfig) withDefaults(base Config) SubscriberConfig {
	c.BatchSize = cmp.Or(c.BatchSize, 1)
	c.BatchBytes = cmp.Or(c.BatchBytes, 4<<20)
	c.PrefetchRecords = cmp.Or(c.PrefetchRecords, max(4096, 4*c.BatchSize))
	c.PrefetchBytes = cmp.Or(c.PrefetchBytes, 8<<20)
	c.StartFrom = cmp.Or(c.StartFrom, StartEarliest)
	c.HookTimeout = cmp.Or(c.HookTimeout, 5*time.Second)
	c.BackoffInitial = cmp.Or(c.BackoffInitial, time.Second)
	c.BackoffMax = cmp.Or(c.BackoffMax, max(time.Minute, c.BackoffInitial))
	client := base.WithDefaults()
	c.DrainTimeout = cmp.Or(c.DrainTimeout, min(10*time.Second, min(client.SessionTimeout, client.RebalanceTimeout)*2/3))
	c.CommitInterval = cmp.Or(c.CommitInterval, 200*time.Millisecond)
	c.Clock = cmp.Or[Clock](c.Clock, systemClock{})
	c.Logger = cmp.Or(c.Logger, client.Logger)
	return c
}

func (c SubscriberConfig) validate(base Config) error {
	base = base.WithDefaults()
	var faults []error
	if c.Group == "" {
		faults = append(faults, errors.New("group is required"))
	}
	for name, n := range map[string]int{
		"batch size": c.BatchSize, "batch bytes": c.BatchBytes, "prefetch records": c.PrefetchRecords, "prefetch bytes": c.PrefetchBytes,
	} {
		if n < 1 {
			faults = append(faults, fmt.Errorf("%s must be positive", name))
		}
	}
	if c.FetchBytes < 0 || c.FetchBytes > math.MaxInt32 {
		faults = append(faults, fmt.Errorf("fetch bytes %d must be between 0 and %d", c.FetchBytes, math.MaxInt32))
	}
	if c.Gather < 0 {
		faults = append(faults, fmt.Errorf("gather %s is negative", c.Gather))
	}
	if c.BackoffInitial < 0 || c.BackoffMax < c.BackoffInitial {
		faults = append(faults, fmt.Errorf("backoff from %s to %s makes no sense", c.BackoffInitial, c.BackoffMax))
	}
	if limit := min(base.RebalanceTimeout, base.SessionTimeout); c.DrainTimeout >= limit {
		faults = append(faults, fmt.Errorf("drain timeout %s must be shorter than the session and rebalance timeouts (%s): the group would give the partition away while it drains", c.DrainTimeout, limit))
	}
	if c.StartFrom != StartEarliest && c.StartFrom != StartLatest {
		faults = append(faults, fmt.Errorf("start from %q is neither earliest nor latest", c.StartFrom))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("kafka subscriber: %w", err)
	}
	return nil
}

// full reports whether so much is fetched ahead that a partition pauses.
func (c SubscriberConfig) full(records, bytes int) bool {
	if c.PrefetchBoth {
		return records > c.PrefetchRecords && bytes > c.PrefetchBytes
	}
	return records >= c.PrefetchRecords || bytes >= c.PrefetchBytes
}

// low reports whether so little is left that a paused partition is fetched again.
func (c SubscriberConfig) low(records, bytes int) bool {
	fewRecords, fewBytes := records <= c.PrefetchRecords/2, bytes <= c.PrefetchBytes/2
	if c.PrefetchBoth {
		return fewRecords || fewBytes
	}
	return fewRecords && fewBytes
}
