package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
)

// stuckAfter is for how long nothing may move before a test gives up and says what
// it sees. It is above every time limit and lease of the tests together, and more than
// twice what may pass before a stalled partition is tried again, or before a group of
// consumers goes on without a member: 60 s each.
const stuckAfter = 150 * time.Second

// workload follows the programs of one test from submit to end.
type workload struct {
	in       *installation
	client   *client.Client
	open     map[string]*program
	states   map[string]string
	ended    int
	asked    map[string]bool // cancels
	lastLook string
	movedAt  time.Time
}

func newWorkload(in *installation, c *client.Client) *workload {
	return &workload{
		in: in, client: c, open: map[string]*program{}, states: map[string]string{},
		asked: map[string]bool{}, movedAt: time.Now(),
	}
}

// submit submits programs, however often that takes.
func (w *workload) submit(list []*program) {
	w.in.t.Helper()
	requests := make([]client.Request, len(list))
	for i, p := range list {
		requests[i] = p.request
	}
	w.accepted(list, w.in.submit(w.client, requests))
}

func (w *workload) accepted(list []*program, ids []string) {
	for i, p := range list {
		p.id = ids[i]
		w.open[p.id] = p
	}
	w.movedAt = time.Now()
}

// running is how many of the programs run, as far as was seen.
func (w *workload) running() int {
	n := 0
	for _, state := range w.states {
		if state == client.Running {
			n++
		}
	}
	return n
}

// until looks at the open executions, cancelling those that are to be cancelled,
// until something has come true. It fails the test when nothing moves.
func (w *workload) until(what string, ok func() bool) {
	t := w.in.t
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		w.look()
		if ok() {
			return
		}
		if time.Since(w.movedAt) > stuckAfter {
			w.in.diagnose()
			require.Fail(t, fmt.Sprintf("nothing moved for %s while waiting until %s; %d have ended, open: %s", stuckAfter, what, w.ended, w.lastLook))
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("out of time")
		}
	}
}

// finish waits for the end of all that was submitted.
func (w *workload) finish() {
	w.in.t.Helper()
	w.until("all have ended", func() bool { return len(w.open) == 0 })
}

// look asks the API about every open execution. While it does not answer, nothing
// is known to have changed.
func (w *workload) look() {
	t := w.in.t
	t.Helper()
	events := int64(0)
	for id, p := range w.open {
		e, err := w.client.Get(t.Context(), id)
		if err != nil {
			continue
		}
		events += e.Version
		if client.Final(e.State) {
			delete(w.open, id)
			delete(w.states, id)
			w.ended++
			continue
		}
		w.states[id] = e.State
		if p.cancel == e.State && !w.asked[id] {
			_, err := w.client.Cancel(t.Context(), id, "no longer needed")
			w.asked[id] = err == nil
		}
	}
	if text := fmt.Sprintf("%v with %d events", w.sum(), events); text != w.lastLook {
		w.lastLook, w.movedAt = text, time.Now()
	}
}

// sum says how many of the open executions are in which state.
func (w *workload) sum() map[string]int {
	counts := map[string]int{}
	for _, state := range w.states {
		counts[state]++
	}
	return counts
}

// diagnose logs what is open where.
func (in *installation) diagnose() {
	t := in.t
	t.Helper()
	for what, sql := range map[string]string{
		"executions":  `SELECT state || ' ' || count(*) || ', due ' || coalesce(min(due_at - now())::text, 'never') FROM executions GROUP BY state`,
		"open":        `SELECT id || ' ' || state || ' attempt ' || attempt || ' worker ' || coalesce(worker, '-') || ' lease ' || coalesce((lease_expires_at - now())::text, '-') || ' of ' || resource_class || ' waits ' || waits || ' ready ' || coalesce((ready_at - now())::text, '-') || ' needs ' || slots || ' ' || cpu_millis || ' ' || memory_bytes || ' ' || gpus || ' key ' || coalesce(concurrency_key, '-') FROM executions WHERE finished_at IS NULL LIMIT 20`,
		"ledger":      `SELECT resource_class || ' queued ' || queued || ' running ' || running || ' slots ' || slots || ' at ' || updated_at FROM admission_ledger`,
		"feed":        `SELECT resource_class || ' queued ' || queued || ' running ' || running || ' rank ' || coalesce(rank::text, '-') || ' tx ' || tx FROM admission_feed`,
		"outbox":      `SELECT status || ' shard ' || shard || ' ' || count(*) || coalesce(' ' || max(last_error), '') FROM outbox_events WHERE status <> 'PUBLISHED' GROUP BY status, shard`,
		"leases":      `SELECT name || ' ' || owner || ' token ' || token || ' for ' || (expires_at - now()) FROM leases`,
		"workers":     `SELECT id || ' slots ' || slots || ' for ' || (expires_at - now()) FROM workers`,
		"offsets":     `SELECT consumer_group || ' ' || topic || '/' || partition || ' at ' || next_offset || ' epoch ' || owner_epoch FROM consumer_offsets ORDER BY 1`,
		"connections": `SELECT state || ' ' || count(*) || ' ' || coalesce(max(now() - xact_start)::text, '') FROM pg_stat_activity WHERE datname = current_database() GROUP BY state`,
	} {
		t.Logf("%s: %s", what, strings.Join(in.texts(sql), "\n    "))
	}
	in.logGroups()
	for _, p := range in.alive() {
		status, body := p.get("/readyz?verbose")
		t.Logf("readyz of %s: %d %s", p.name, status, body)
		_, stacks := p.get("/debug/pprof/goroutine?debug=1")
		path := strings.TrimSuffix(p.child.LogFile(), ".err") + ".goroutines"
		if err := os.WriteFile(path, []byte(stacks), 0o600); err != nil {
			t.Logf("goroutines of %s: %v", p.name, err)
		}
	}
}

// texts returns the rows of a query of one column, or the error in their place.
func (in *installation) texts(sql string) []string {
	rows, err := in.db.Query(in.t.Context(), sql)
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
	return all
}

// logGroups logs in what state the consumer groups are, whom they have for members, and how
// far each is behind, as Kafka sees it.
func (in *installation) logGroups() {
	t := in.t
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(t, err)
	defer client.Close()
	lags, err := kadm.NewClient(client).Lag(t.Context())
	for _, g := range lags.Sorted() {
		members := make([]string, len(g.Members))
		for i, m := range g.Members {
			members[i] = m.ClientID
		}
		behind := slices.DeleteFunc(g.Lag.Sorted(), func(l kadm.GroupMemberLag) bool { return l.Lag == 0 })
		t.Logf("%s is %s, its members are %v, it is behind in %+v (error: %v)", g.Group, g.State, members, behind, g.Error())
	}
	if err != nil {
		t.Logf("not all is known of the groups: %v", err)
	}
}
