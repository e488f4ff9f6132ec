package alerts

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
)

// triggers looks at triggers that stand for longer than their definitions allow for. They
// are what members said of themselves, so no key of a record is among it.
func triggers(ctx context.Context, tx pgx.Tx) ([]condition, error) {
	stalls, err := report.LongStalls(ctx, tx, maxConditions)
	if err != nil {
		return nil, err
	}
	scheduled, err := schedule.LongStalls(ctx, tx, maxConditions)
	if err != nil {
		return nil, err
	}
	stalls = append(stalls, scheduled...)
	found := make([]condition, len(stalls))
	for i, s := range stalls {
		c := condition{
			key: fmt.Sprintf("%s/%s", TriggerStalled, s.Trigger), kind: TriggerStalled, since: s.Since,
			details: map[string]any{"trigger": s.Trigger, "state": s.State, "owner": s.Owner},
			summary: fmt.Sprintf("trigger %s does not run", s.Trigger),
		}
		if s.State == trigger.StateUnowned {
			c.summary = fmt.Sprintf("trigger %s is run by no process", s.Trigger)
		} else {
			c.details["code"], c.details["error"], c.details["attempts"] = s.Cause.Code, s.Cause.Message, s.Attempts
		}
		if s.Topic != "" {
			c.key = fmt.Sprintf("%s/%s/%d", c.key, s.Topic, s.Partition)
			c.summary = fmt.Sprintf("trigger %s does not go on in partition %d of %s", s.Trigger, s.Partition, s.Topic)
			c.details["topic"], c.details["partition"], c.details["offset"] = s.Topic, s.Partition, s.Offset
		}
		found[i] = c
	}
	resting, err := restingTriggers(ctx, tx)
	return append(found, resting...), err
}

// restingTriggers looks at triggers that are switched off and may lose something by that.
func restingTriggers(ctx context.Context, tx pgx.Tx) ([]condition, error) {
	warnings, err := report.Warnings(ctx, tx, maxConditions)
	if err != nil {
		return nil, err
	}
	found := make([]condition, len(warnings))
	for i, w := range warnings {
		found[i] = condition{
			key: fmt.Sprintf("%s/%s", TriggerResting, w.Trigger), kind: TriggerResting, since: w.Since,
			summary: fmt.Sprintf("trigger %s is switched off: %s", w.Trigger, w.Notes[0].Message),
			details: map[string]any{"trigger": w.Trigger, "notes": w.Notes},
		}
	}
	return found, nil
}
