package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// reader reads the topic of one job type.
type reader struct {
	session *session
	topic   string
	source  source

	mu    sync.Mutex
	lanes map[int32]*lane
}

// source is what a reader needs of a Kafka client.
type source interface {
	PollRecords(ctx context.Context, max int) kgo.Fetches
	MarkCommitRecords(records ...*kgo.Record)
	CommitMarkedOffsets(ctx context.Context) error
	PauseFetchPartitions(map[string][]int32) map[string][]int32
	ResumeFetchPartitions(map[string][]int32)
	Close()
}

const (
	// recordsPerPoll bounds what one poll brings.
	recordsPerPoll = 500
	// commitTimeout is how long the broker has to take the last offsets.
	commitTimeout = 10 * time.Second
)

func newReader(s *session, jobType string) (*reader, error) {
	r := &reader{session: s, topic: s.cfg.Topic(jobType), lanes: map[int32]*lane{}}
	options := append([]kgo.Opt{
		kgo.SeedBrokers(s.cfg.Brokers...),
		kgo.ClientID(s.cfg.WorkerID),
		kgo.ConsumerGroup(s.cfg.Group(jobType)),
		kgo.ConsumeTopics(r.topic),
		// A group that reads a topic for the first time begins with what is in it: these
		// are jobs that wait for somebody.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(time.Second),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, gone map[string][]int32) { r.leave(ctx, gone[r.topic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { r.forget(gone[r.topic]) }),
		// A topic is made when the first job of its type is dispatched, which a worker
		// that is there before should notice soon.
		kgo.MetadataMaxAge(30 * time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.UnknownTopicRetries(-1),
	}, s.cfg.Options...)
	c, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	r.source = c
	return r, nil
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	log := r.session.cfg.Logger
	for {
		fetches := r.source.PollRecords(ctx, recordsPerPoll)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				log.Warn("read jobs", "topic", topic, "partition", partition, "error", err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { r.lane(record.Partition).add(record) })
	}
}

// lane returns that of a partition.
func (r *reader) lane(partition int32) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.lanes[partition]
	if !ok {
		l = &lane{reader: r, partition: partition}
		r.lanes[partition] = l
	}
	return l
}

// leave commits what is done in partitions that go to another member of the group.
func (r *reader) leave(ctx context.Context, gone []int32) {
	r.forget(gone)
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := r.source.CommitMarkedOffsets(ctx); err != nil {
		r.session.cfg.Logger.Warn("commit offsets: jobs that are done are read again", "topic", r.topic, "error", err)
	}
}

func (r *reader) forget(gone []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, partition := range gone {
		if l, ok := r.lanes[partition]; ok {
			l.close()
			delete(r.lanes, partition)
		}
	}
}

// close commits and leaves the group.
func (r *reader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
	defer cancel()
	if err := r.source.CommitMarkedOffsets(ctx); err != nil {
		r.session.cfg.Logger.Warn("commit offsets: jobs that are done are read again", "topic", r.topic, "error", err)
	}
	r.source.Close()
}

// lane is the records of one partition: those that wait, and those whose jobs are under
// way, in the order of their offsets.
type lane struct {
	reader    *reader
	partition int32

	mu      sync.Mutex
	waiting []*kgo.Record
	open    []*place
	running int
	busy    bool // a goroutine begins jobs
	paused  bool
	closed  bool
}

// place is a record whose job was begun.
type place struct {
	record *kgo.Record
	done   bool
	commit bool
}

// add queues a record.
func (l *lane) add(record *kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.waiting = append(l.waiting, record)
	if !l.paused && len(l.waiting) > 4*l.reader.session.cfg.PerPartition {
		l.paused = true
		l.reader.source.PauseFetchPartitions(map[string][]int32{l.reader.topic: {l.partition}})
	}
	l.next()
}

// next sees to it that jobs are begun while there are records and room. The caller holds
// mu.
func (l *lane) next() {
	if !l.busy && !l.closed && len(l.waiting) > 0 && l.running < l.reader.session.cfg.PerPartition {
		l.busy = true
		go l.begin()
	}
}

// begin begins jobs until there are no records or there is no room, one after the other:
// waiting for a free place in the executor must not let the order be lost.
func (l *lane) begin() {
	for {
		l.mu.Lock()
		if l.closed || len(l.waiting) == 0 || l.running >= l.reader.session.cfg.PerPartition {
			l.busy = false
			l.mu.Unlock()
			return
		}
		record := l.waiting[0]
		l.waiting = l.waiting[1:]
		if l.paused && len(l.waiting) <= l.reader.session.cfg.PerPartition {
			l.paused = false
			l.reader.source.ResumeFetchPartitions(map[string][]int32{l.reader.topic: {l.partition}})
		}
		p := &place{record: record}
		l.open = append(l.open, p)
		l.running++
		l.mu.Unlock()

		d, err := decode(record)
		if err != nil {
			// Nobody can read it. The engine dispatches the job again when the lease
			// that began with this record is over.
			l.reader.session.cfg.Logger.Error("record passed over", "topic", l.reader.topic, "partition", l.partition, "offset", record.Offset, "error", err)
			l.finish(p, true)
			continue
		}
		l.reader.session.begin(d, func(commit bool) { l.finish(p, commit) })
	}
}

// finish takes note that a record's job is done with, and marks for the next commit as far
// as all records are. One that must not be committed holds up what comes after it: the
// worker is being stopped.
func (l *lane) finish(p *place, commit bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.done, p.commit = true, commit
	l.running--
	var last *kgo.Record
	for len(l.open) > 0 && l.open[0].done && l.open[0].commit {
		last = l.open[0].record
		l.open = l.open[1:]
	}
	if last != nil && !l.closed {
		l.reader.source.MarkCommitRecords(last)
	}
	l.next()
}

// close drops what has not begun: the partition is another member's now.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.waiting = nil
}
