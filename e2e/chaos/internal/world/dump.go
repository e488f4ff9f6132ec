package world

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stateQueries say what is open where, one text per row.
func stateQueries() map[string]string {
	return map[string]string{
		"activity": `SELECT format('%s %s %s %s %s xact %s wait %s/%s: %s', pid, application_name, backend_type, state, client_port,
			now() - xact_start, wait_event_type, wait_event, left(query, 300)) FROM pg_stat_activity ORDER BY xact_start NULLS LAST`,
		"locks":     `SELECT format('%s %s %s %s granted %s', pid, locktype, relation::regclass, mode, granted) FROM pg_locks WHERE NOT granted`,
		"outbox":    `SELECT format('%s %s shard %s: %s rows, from seq %s, oldest %s, attempts %s, %s', status, topic, shard, count(*), min(seq), min(created_at), max(attempts), max(last_error)) FROM outbox_events WHERE status <> 'PUBLISHED' GROUP BY status, topic, shard`,
		"leases":    `SELECT format('%s of %s token %s for %s', name, owner, token, expires_at - now()) FROM leases ORDER BY name`,
		"members":   `SELECT format('%s %s for %s', kind, member, expires_at - now()) FROM lease_members`,
		"positions": `SELECT format('%s %s/%s at %s epoch %s, %s', consumer_group, topic, partition, next_offset, owner_epoch, updated_at) FROM consumer_offsets ORDER BY 1`,
		"open":      `SELECT format('%s %s attempt %s worker %s lease %s due %s', id, state, attempt, worker, lease_expires_at - now(), due_at - now()) FROM executions WHERE finished_at IS NULL LIMIT 100`,
		"letters":   `SELECT format('%s %s %s: %s', consumer, status, class, count(*)) FROM dead_letters GROUP BY consumer, status, class ORDER BY 1`,
		"missing": `SELECT format('%s %s of %s/%s (%s) event %s at %s', c.name, f.kind, f.key, f.seq, f.topic, f.event_id, f.at)
			FROM chaos_facts f CROSS JOIN (VALUES ('ledger-tx'), ('ledger-batch')) AS c(name)
			WHERE f.topic = 'chaos_ledger' AND f.kind NOT IN ('garbage', 'oversize')
			  AND NOT EXISTS (SELECT FROM chaos_ledger l WHERE l.consumer = c.name AND l.event_id = f.event_id) ORDER BY f.at LIMIT 200`,
	}
}

// Dump writes what can be seen of a world that stands still into a directory and
// returns it: the state of the database, how far the groups are, the metrics of
// every process and, since it ends them, the stacks of all of their goroutines in
// their logs.
func (w *World) Dump(groups []string) string {
	dir := filepath.Join(w.Dir, fmt.Sprintf("stuck-%d", time.Now().Unix()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			w.note("dump: %v", err)
		}
	}
	for name, sql := range stateQueries() {
		write(name+".txt", strings.Join(w.Texts(ctx, sql), "\n"))
	}
	write("groups.txt", w.lags(ctx, groups))
	for _, m := range w.Members {
		if !m.Running() {
			continue
		}
		metrics, err := m.Get(ctx, "/metrics")
		if err != nil {
			metrics = err.Error()
		}
		write(m.Name+"-metrics.txt", metrics)
		p := m.give()
		_ = p.Signal(syscall.SIGCONT)
		_ = p.Signal(syscall.SIGQUIT)
		stop, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, _ = p.Wait(stop)
		cancel()
		log, _ := p.Log()
		write(m.Name+"-log-with-stacks.txt", log)
	}
	return dir
}

// Texts returns the rows of a query of one column, or the error in their place.
func (w *World) Texts(ctx context.Context, sql string) []string {
	rows, err := w.DB.Query(ctx, sql)
	if err != nil {
		return []string{err.Error()}
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text *string
		if err := rows.Scan(&text); err != nil {
			return append(all, err.Error())
		}
		if text != nil {
			all = append(all, *text)
		}
	}
	if err := rows.Err(); err != nil {
		all = append(all, err.Error())
	}
	return all
}

func (w *World) lags(ctx context.Context, groups []string) string {
	var out strings.Builder
	for _, group := range groups {
		lags, err := w.Admin.Lag(ctx, group)
		if err != nil {
			fmt.Fprintf(&out, "%s: %v\n", group, err)
		}
		for _, l := range lags {
			fmt.Fprintf(&out, "%s %s/%d committed %d end %d lag %d of %s\n", group, l.Topic, l.Partition, l.Committed, l.End, l.Lag, l.Member)
		}
	}
	return out.String()
}
