package dataindex

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Querier is a connection or a pool.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// instancesSQL returns the data index in the words of a recording.
const instancesSQL = `
	SELECT jsonb_build_object(
		'id', id, 'namespace', namespace, 'name', name, 'version', version, 'status', status,
		'start', start, 'end', "end", 'output', output, 'error', ` + errorSQL + `,
		'tasks', coalesce((SELECT jsonb_agg(jsonb_build_object(
			'position', task_position, 'iteration', iteration, 'attempt', attempt, 'name', task_name, 'status', status,
			'start', start, 'end', "end", 'output', output, 'error', ` + errorSQL + `) ORDER BY task_position, iteration, attempt)
			FROM task_instances WHERE instance_id = w.id), '[]'))
	FROM workflow_instances AS w WHERE id = ANY ($1) ORDER BY id`

const errorSQL = `CASE WHEN error_type IS NOT NULL THEN jsonb_build_object('type', error_type,
	'status', error_status, 'title', error_title, 'detail', error_detail, 'instance', error_instance) END`

// Indexed returns what the data index says of instances, by id. Those that it does not
// know are left out.
func Indexed(ctx context.Context, db Querier, ids []string) (map[string]Instance, error) {
	rows, err := db.Query(ctx, instancesSQL, ids)
	if err != nil {
		return nil, fmt.Errorf("read data index: %w", err)
	}
	docs, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, fmt.Errorf("read data index: %w", err)
	}
	all, err := lines[Instance](bytes.Join(docs, []byte("\n")))
	if err != nil {
		return nil, fmt.Errorf("read data index: %w", err)
	}
	found := make(map[string]Instance, len(all))
	for _, i := range all {
		found[i.ID] = i
	}
	return found, nil
}

// IDs returns the ids of the instances.
func (r Recording) IDs() []string {
	ids := make([]string, len(r.Instances))
	for n, i := range r.Instances {
		ids[n] = i.ID
	}
	return ids
}

// Differences says where the data index and the SDK disagree, a line for each field;
// none when all is as it should be.
func (r Recording) Differences(indexed map[string]Instance) (lines []string) {
	for _, want := range r.Instances {
		have, ok := indexed[want.ID]
		if !ok {
			lines = append(lines, fmt.Sprintf("%s (%s): not in the index", want.ID, want.Name))
			continue
		}
		lines = append(lines, differences(fmt.Sprintf("%s (%s)", want.ID, want.Name), want.fields(), have.fields())...)
	}
	return lines
}

func differences(what string, want, have map[string]string) (lines []string) {
	for name := range merged(want, have) {
		if want[name] != have[name] {
			lines = append(lines, fmt.Sprintf("%s: %s is %s, the SDK says %s", what, name,
				cmp.Or(have[name], "missing"), cmp.Or(want[name], "nothing of it")))
		}
	}
	slices.Sort(lines)
	return lines
}

func merged(a, b map[string]string) map[string]bool {
	all := make(map[string]bool, len(a))
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

// fields are what is compared, by name. Nulls are left out.
func (i Instance) fields() map[string]string {
	all := map[string]string{
		"namespace": i.Namespace, "name": i.Name, "version": i.Version, "status": shown(i.Status), "start": moment(&i.Start),
	}
	outcome(all, "", i.End, i.Output, i.Error)
	for _, t := range i.Tasks {
		task := fmt.Sprintf("task %s %d/%d ", t.Position, t.Iteration, t.Attempt)
		all[task+"name"], all[task+"status"], all[task+"start"] = t.Name, t.Status, moment(&t.Start)
		outcome(all, task, t.End, t.Output, t.Error)
	}
	return all
}

func outcome(all map[string]string, prefix string, end *time.Time, output json.RawMessage, failure *Error) {
	if end != nil {
		all[prefix+"end"] = moment(end)
	}
	if text := compact(output); text != "" {
		all[prefix+"output"] = text
	}
	if failure != nil {
		text, _ := json.Marshal(failure) // strings and numbers: it cannot fail
		all[prefix+"error"] = string(text)
	}
}

// moment is a time as PostgreSQL keeps it, in microseconds.
func moment(t *time.Time) string { return t.UTC().Round(time.Microsecond).Format(time.RFC3339Nano) }

// compact is a document without spaces and with its names in order.
func compact(doc json.RawMessage) string {
	var value any
	if len(doc) == 0 || json.Unmarshal(doc, &value) != nil || value == nil {
		return ""
	}
	text, _ := json.Marshal(value) // it was JSON
	return string(text)
}

// shown is the status that the data index shows for one of the SDK's: it knows no
// WAITING.
func shown(status string) string {
	if status == "WAITING" {
		return "RUNNING"
	}
	return status
}
