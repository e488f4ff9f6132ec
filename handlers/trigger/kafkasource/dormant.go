package kafkasource

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/trigger"
)

// warnBefore is how long before the offsets of a disabled trigger expire it is told, at
// the latest when half of their time has passed.
const warnBefore = 48 * time.Hour

// offsetsRetention is for how long brokers keep offsets unless they are told otherwise.
const offsetsRetention = 7 * 24 * time.Hour

// Dormant says what a trigger that has been disabled since then is about to lose, or has
// lost: brokers forget the offsets of a group that has no members. It returns nothing while
// there is time, and an error when the brokers cannot be asked.
func (s *Source) Dormant(ctx context.Context, t *trigger.Compiled, since time.Time) ([]trigger.Cause, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*surveyTimeout)
	defer cancel()
	admin, err := kafka.NewAdmin(s.client(t))
	if err != nil {
		return nil, fmt.Errorf("look after the offsets of trigger %s: %w", t.ID, err)
	}
	defer admin.Close()
	if err := admin.Ping(ctx); err != nil {
		return nil, fmt.Errorf("look after the offsets of trigger %s: %w", t.ID, err)
	}
	retention, err := admin.OffsetsRetention(ctx)
	if kafka.TroubleOf(err) == kafka.TroubleAuthorization {
		retention, err = offsetsRetention, nil // the account may read topics, not settings
	}
	if err != nil {
		return nil, fmt.Errorf("look after the offsets of trigger %s: %w", t.ID, err)
	}
	left := time.Until(since.Add(retention))
	if left > min(warnBefore, retention/2) {
		return nil, nil
	}
	waiting, kept, err := s.position(ctx, admin, t)
	if err != nil {
		return nil, fmt.Errorf("look after the offsets of trigger %s: %w", t.ID, err)
	}
	switch {
	case !kept && left > 0:
		return nil, nil // it never had any
	case !kept:
		return []trigger.Cause{{
			Code: "offsets_expired",
			Message: fmt.Sprintf("The brokers keep no offsets of group %s any more: they forget a group %s after it was last there, and the trigger has been disabled since %s.",
				t.Kafka.Group, retention, since.UTC().Format(time.RFC3339)),
			Hint: "When it is enabled it goes on where it was seen last, as far as the topics still have those messages.",
		}}, nil
	}
	return []trigger.Cause{{
		Code: "offsets_expire",
		Message: fmt.Sprintf("The trigger has been disabled since %s: from %s on the brokers may forget the offsets of group %s, behind which %d messages wait.",
			since.UTC().Format(time.RFC3339), since.Add(retention).UTC().Format(time.RFC3339), t.Kafka.Group, waiting),
		Hint: "Enable it before that, if only for a minute, or raise offsets.retention.minutes of the brokers.",
	}}, nil
}

// position returns how many messages wait for a group, and whether it has offsets at all.
func (s *Source) position(ctx context.Context, admin *kafka.Admin, t *trigger.Compiled) (waiting int64, kept bool, err error) {
	found, err := admin.FindTopics(ctx, t.Kafka.Topics...)
	if err != nil {
		return 0, false, err
	}
	for _, topic := range found {
		committed, err := admin.Committed(ctx, t.Kafka.Group, topic.Name)
		if err != nil {
			return 0, false, err
		}
		ends, err := admin.EndOffsets(ctx, topic.Name)
		if err != nil {
			return 0, false, err
		}
		for id, offset := range committed {
			kept = true
			waiting += max(0, ends[topic.Name][id]-offset)
		}
	}
	return waiting, kept, nil
}
