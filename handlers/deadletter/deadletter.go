// Package deadletter is the consumer that files the letters of the dead-letter
// topic in the table dead_letters, where package internal/deadletter has them.
//
// Transactional consumers have filed theirs already; the others' are filed here.
// Letters that SmallRye, Kafka Connect, Kafka Streams and Spring write are read,
// and say where they come from. A record of the topic that is no letter is filed
// too, as a letter of this very consumer, so that nothing lies in the topic unseen.
//
// Letters of one partition are filed in order, in the transaction that moves the
// consumer's position; after a crash the same batch comes again and changes
// nothing. When the table cannot be written, the partition stalls: there is
// nowhere else for a letter to go.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/topics"
)

// Name is the name of the consumer, and so of its consumer group.
const Name = "dead-letters"

// nowhere is never written: see New.
const nowhere topics.Topic = "dead_letters_of_dead_letters"

// New returns the consumer that files what lies in dead_letters.
func New() pipeline.Consumer { return For(topics.DeadLetters) }

// For returns the consumer that files what lies in a dead-letter topic.
func For(topic topics.Topic) pipeline.Consumer {
	return pipeline.Consumer{
		Name:  nameFor(topic),
		Topic: topic,
		Handle: pipeline.OnBatchTx(func(ctx context.Context, tx pipeline.Tx, batch []topics.Record) error {
			letters := make([]*middleware.Letter, len(batch))
			for i, r := range batch {
				letters[i] = letterOf(r)
			}
			err := deadletter.File(ctx, tx, letters...)
			crash.At("dead_letters.ingesting")
			// Whatever is wrong, no letter is to blame: stall.
			return pipeline.Infrastructure(err)
		}),
		GuardedByState: true,
		// A letter has the headers of its original, which may be meant for one consumer
		// or come from a replay.
		Untargeted: true,
		Replay:     true,
		Delivery:   pipeline.Delivery{OnExhausted: pipeline.Block, DeadLetterTopic: nowhere},
	}
}

// Others returns the consumers for the dead-letter topics other than dead_letters
// that consumers name, and for further ones.
func Others(consumers []pipeline.Consumer, further ...topics.Topic) []pipeline.Consumer {
	seen := map[topics.Topic]bool{"": true, topics.DeadLetters: true, nowhere: true}
	for _, c := range consumers {
		further = append(further, c.Delivery.DeadLetterTopic)
	}
	slices.Sort(further)
	var filers []pipeline.Consumer
	for _, topic := range further {
		if !seen[topic] {
			seen[topic] = true
			filers = append(filers, For(topic))
		}
	}
	return filers
}

// nameFor is the name of the consumer that files the letters of a topic.
func nameFor(topic topics.Topic) string {
	if topic == topics.DeadLetters {
		return Name
	}
	return pipeline.NameOf(Name, topic)
}

// letterOf returns the letter that a record of the topic is, or one about the
// record itself.
func letterOf(r topics.Record) *middleware.Letter {
	l, err := middleware.ParseLetter(r)
	if err == nil && l.Class != 0 && l.Consumer != "" && l.Original.Offset >= 0 && l.Original.Partition >= 0 {
		return l
	}
	if l := foreign(r); l != nil {
		return l
	}
	if err == nil {
		err = errors.New("parse dead letter: class, consumer or place is not valid")
	}
	at := r.Timestamp.UTC()
	if at.IsZero() {
		at = time.Unix(0, 0).UTC()
	}
	return &middleware.Letter{
		Consumer: Name, Group: Name, Original: r, Class: middleware.MessageFault,
		Reason: err.Error(), Error: err.Error(), ErrorType: fmt.Sprintf("%T", err), CauseType: fmt.Sprintf("%T", err),
		Attempts: 1, FirstFailure: at, LastFailure: at,
	}
}
