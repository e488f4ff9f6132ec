package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/report"
	"github.com/millrace/millrace/internal/trigger/store"
)

// maxTroubles is how many triggers are told of one by one.
const maxTroubles = 10

// triggers looks at how triggers are doing, and whether this process could run them.
func (x *examination) triggers(ctx context.Context, pool *pgxpool.Pool, config configs.Config) {
	const name = "triggers"
	st := store.New(store.Config{Pool: pool, Defaults: config.TriggerDefaults()})
	all, err := st.All(ctx)
	if err != nil {
		x.add(checkWarn, name, err.Error(), "")
		return
	}
	statuses, err := report.NewReader(pool).Of(ctx, all...)
	if err != nil {
		x.add(checkWarn, name, err.Error(), "")
		return
	}
	counts := make(map[trigger.State]int)
	troubles := 0
	for i, s := range statuses {
		counts[s.State]++
		detail, advice := trouble(st, all[i], s)
		if detail == "" {
			continue
		}
		if troubles++; troubles <= maxTroubles {
			x.add(checkWarn, "trigger "+s.ID, detail, advice)
		}
	}
	if troubles > maxTroubles {
		x.add(checkWarn, name, fmt.Sprintf("%d more do not run as they should", troubles-maxTroubles), "see `millrace triggers list`")
	}
	if troubles == 0 {
		x.ok(name, "%s, %d switched off; all others run", plural(len(all), "trigger"), counts[trigger.StateDisabled])
	}
}

// trouble says what is wrong with a trigger, or nothing.
func trouble(st *store.Store, t trigger.Stored, s trigger.Status) (detail, advice string) {
	if _, err := st.Compile(t); err != nil && s.State != trigger.StateDisabled {
		return "cannot be run with these settings: " + err.Error(), "apply it anew, or give this process the settings of the others"
	}
	if s.State == trigger.StateError || s.State == trigger.StateUnowned {
		if s.Cause == nil {
			return string(s.State), "see `millrace triggers status " + s.ID + "`"
		}
		return s.Cause.Message, s.Cause.Hint
	}
	if len(s.Notes) > 0 {
		return s.Notes[0].Message, s.Notes[0].Hint
	}
	return "", ""
}
