package stock

import (
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
)

// errEnded is why a source fails when sarama gave it up without a reason.
var errEnded = errors.New("the partition consumer ended")

// reader reads partitions from exact offsets. It has a client of its own, so that
// its fetches and the heartbeats of the group do not wait for each other. It
// connects when it is first used.
type reader struct {
	brokers []string
	config  *sarama.Config

	mu       sync.Mutex
	client   sarama.Client
	consumer sarama.Consumer
}

func (r *reader) connect() (sarama.Consumer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.consumer != nil {
		return r.consumer, nil
	}
	client, err := sarama.NewClient(r.brokers, r.config)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	r.client, r.consumer = client, consumer
	return consumer, nil
}

func (r *reader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		return nil
	}
	if err := errors.Join(r.consumer.Close(), r.client.Close()); err != nil {
		return fmt.Errorf("close kafka reader: %w", err)
	}
	return nil
}

// source is one partition read from an offset on. It takes over everything that
// sarama has fetched at once, and pauses the partition while that is enough.
type source struct {
	partition           sarama.PartitionConsumer
	maxRecords, maxSize int
	// wake has a value when there is something to take, or to fail of.
	wake chan struct{}
	// pumping ends with pumpRecords, which ends last.
	pumping sync.WaitGroup
	errors  chan struct{} // closed when no further reason can come

	mu    sync.Mutex
	queue []*sarama.ConsumerMessage
	size  int
	err   error
}

// open fails with sarama.ErrOffsetOutOfRange if offset is not in the log.
func (r *reader) open(topic string, partition int32, offset int64, maxRecords, maxSize int) (*source, error) {
	consumer, err := r.connect()
	if err != nil {
		return nil, err
	}
	pc, err := consumer.ConsumePartition(topic, partition, offset)
	if err != nil {
		return nil, err
	}
	src := &source{partition: pc, maxRecords: maxRecords, maxSize: maxSize, wake: make(chan struct{}, 1), errors: make(chan struct{})}
	src.pumping.Go(src.pumpRecords)
	go src.pumpErrors()
	return src, nil
}

// close ends the source. Nothing of it is under way afterwards.
func (src *source) close() {
	src.partition.AsyncClose()
	src.pumping.Wait()
}

func (src *source) pumpRecords() {
	for msg := range src.partition.Messages() {
		src.mu.Lock()
		src.queue = append(src.queue, msg)
		src.size += size(msg)
		full := len(src.queue) >= src.maxRecords || src.size >= src.maxSize
		if full {
			src.partition.Pause()
		}
		src.mu.Unlock()
		src.notify()
	}
	<-src.errors
	src.fail(errEnded)
}

func (src *source) pumpErrors() {
	defer close(src.errors)
	for err := range src.partition.Errors() {
		src.fail(err.Err)
	}
}

// fail notes the first reason.
func (src *source) fail(err error) {
	src.mu.Lock()
	if src.err == nil {
		src.err = err
	}
	src.mu.Unlock()
	src.notify()
}

func (src *source) notify() {
	select {
	case src.wake <- struct{}{}:
	default:
	}
}

// take returns the next record, or nil and why fetching failed, if it did. What is
// queued comes first.
func (src *source) take() (*sarama.ConsumerMessage, error) {
	src.mu.Lock()
	defer src.mu.Unlock()
	if len(src.queue) == 0 {
		return nil, src.err
	}
	msg := src.queue[0]
	src.queue[0] = nil
	src.queue = src.queue[1:]
	src.size -= size(msg)
	if len(src.queue) <= src.maxRecords/2 && src.size <= src.maxSize/2 {
		src.partition.Resume()
	}
	return msg, nil
}

func (src *source) len() int {
	src.mu.Lock()
	defer src.mu.Unlock()
	return len(src.queue)
}

// size is about what a record takes in memory.
func size(msg *sarama.ConsumerMessage) int {
	n := 128 + len(msg.Key) + len(msg.Value)
	for _, h := range msg.Headers {
		n += 40 + len(h.Key) + len(h.Value)
	}
	return n
}
