package ingest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// deadLetterTopic is where letters of triggers are published.
const deadLetterTopic = topics.DeadLetters

type letter = *middleware.Letter

// letterOf is the dead letter of a message that was refused. It has the cluster, so that a
// redrive comes here and not to a topic of ours that has the same name.
func letterOf(t *trigger.Compiled, it *item, r *Refusal, now time.Time) letter {
	p := it.Place
	l := &middleware.Letter{
		Consumer: t.DeadLetterConsumer(), Original: p.Record, Cluster: p.Cluster, Class: middleware.MessageFault,
		Reason: cut(r.Code+": "+r.Message, middleware.MaxReasonBytes), Error: cut(r.Code+": "+r.Message, middleware.MaxErrorBytes),
		ErrorType: "*ingest.Refusal", CauseType: r.Code, Cause: cut(r.Message, middleware.MaxReasonBytes),
		Attempts: 1, FirstFailure: now, LastFailure: now,
	}
	l.Original.Topic, l.Original.TopicID, l.Original.Partition, l.Original.Offset = p.Topic, p.TopicID, p.Partition, p.Offset
	if t.Kafka != nil {
		l.Group = t.Kafka.Group
	}
	if it.Event != nil {
		l.EventType, l.Source, l.EventID = it.Event.Type, it.Event.Source, it.Event.ID
	}
	if it.Letter != "" {
		l.Original = deadletter.Again(l.Original, it.Letter)
	}
	return l
}

// cut returns at most limit bytes of a text, as UTF-8 without zero bytes.
func cut(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
