package projections

import (
	"encoding/json"
	"strings"

	"github.com/millrace/millrace/topics"
)

// executionViews declares the table execution_views. The migration that makes it
// says what each column means.
func executionViews() table[executionRow] {
	type row = executionRow
	asked := func(value func(*topics.Request) any) func(*row) any {
		return func(r *row) any {
			if r.request == nil {
				return nil
			}
			return value(r.request)
		}
	}
	col := func(name, sqlType string, r rule, value func(*row) any) column[row] {
		return column[row]{name, sqlType, r, value}
	}
	return table[row]{
		name: "execution_views",
		key:  col("id", "text", rule{}, func(r *row) any { return r.id }),
		columns: []column[row]{
			col("tenant", "text", first(), asked(func(q *topics.Request) any { return text(q.Tenant) })),
			col("user_name", "text", first(), asked(func(q *topics.Request) any { return text(q.User) })),
			col("name", "text", first(), asked(func(q *topics.Request) any { return text(nameOf(*q)) })),
			col("executor", "text", first(), asked(func(q *topics.Request) any { return text(q.Executor) })),
			col("resource_class", "text", first(), asked(func(q *topics.Request) any { return text(q.ResourceClass) })),
			col("concurrency_key", "text", first(), asked(func(q *topics.Request) any { return text(q.ConcurrencyKey) })),
			col("labels", "jsonb", first(), asked(func(q *topics.Request) any { return labels(q.Labels) })),
			col("origin_kind", "text", first(), asked(func(q *topics.Request) any { return text(q.Origin.Kind) })),
			col("rerun_of", "text", first(), asked(func(q *topics.Request) any { return text(q.Origin.RerunOf) })),
			col("not_before", "timestamptz", first(), asked(func(q *topics.Request) any {
				if q.NotBefore == nil {
					return nil
				}
				return moment(*q.NotBefore)
			})),
			col("requested_at", "timestamptz", first(), func(r *row) any { return moment(r.asked) }),

			col("priority", "int2", latest("priority_version"), func(r *row) any { return r.priority.stored() }),
			col("priority_version", "int8", highest(), func(r *row) any { return r.priority.at }),

			col("version", "int8", highest(), func(r *row) any { return r.version }),
			col("attempt", "int4", highest(), func(r *row) any { return r.attempt }),
			col("state", "text", latest("state_version"), func(r *row) any { return text(string(r.state)) }),
			col("state_version", "int8", highest(), func(r *row) any { return r.stateAt }),

			col("queued_at", "timestamptz", latest("queued_version"), func(r *row) any { return moment(r.queued.time) }),
			col("ready_at", "timestamptz", latest("queued_version"), func(r *row) any { return moment(r.queued.readyTime) }),
			col("queued_version", "int8", highest(), func(r *row) any { return r.queued.at }),

			col("scheduled_at", "timestamptz", latest("scheduled_version"), func(r *row) any { return moment(r.scheduled.time) }),
			col("waited_millis", "int8", latest("scheduled_version"), func(r *row) any { return number(r.scheduled.waitedMillis) }),
			col("scheduled_version", "int8", highest(), func(r *row) any { return r.scheduled.at }),

			col("started_at", "timestamptz", latest("started_version"), func(r *row) any { return moment(r.started.time) }),
			col("started_version", "int8", highest(), func(r *row) any { return r.started.at }),

			col("worker", "text", latest("worker_version"), func(r *row) any { return text(r.worker.name) }),
			col("worker_version", "int8", highest(), func(r *row) any { return r.worker.at }),

			col("finished_at", "timestamptz", latest("result_version"), func(r *row) any { return moment(r.result.time) }),
			col("duration_millis", "int8", latest("result_version"), func(r *row) any { return number(r.result.durationMillis) }),
			col("exit_code", "int4", latest("result_version"), func(r *row) any { return number(r.result.failure.ExitCode) }),
			col("signal", "text", latest("result_version"), func(r *row) any { return text(r.result.failure.Signal) }),
			col("reason", "text", latest("result_version"), func(r *row) any { return text(r.result.failure.Reason) }),
			col("message", "text", latest("result_version"), func(r *row) any { return text(r.result.failure.Message) }),
			col("stdout_bytes", "int8", latest("result_version"), func(r *row) any { return number(r.result.stdout) }),
			col("stderr_bytes", "int8", latest("result_version"), func(r *row) any { return number(r.result.stderr) }),
			col("result_version", "int8", highest(), func(r *row) any { return r.result.at }),

			col("cancel_requested_at", "timestamptz", latest("cancel_requested_version"),
				func(r *row) any { return moment(r.cancel.time) }),
			col("cancel_requested_version", "int8", highest(), func(r *row) any { return r.cancel.at }),
		},
	}
}

// labels returns the labels as jsonb, or null when there are none.
func labels(m map[string]string) any {
	if len(m) == 0 {
		return nil
	}
	clean := make(map[string]string, len(m))
	for name, value := range m {
		clean[strings.ReplaceAll(name, "\x00", "\uFFFD")] = strings.ReplaceAll(value, "\x00", "\uFFFD")
	}
	raw, err := json.Marshal(clean)
	if err != nil { // cannot happen: texts only
		return nil
	}
	return string(raw)
}
