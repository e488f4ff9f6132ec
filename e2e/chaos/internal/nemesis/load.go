package nemesis

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/e2e/chaos/internal/workload"
	"github.com/millrace/millrace/e2e/chaos/internal/world"
	"github.com/millrace/millrace/internal/client"
)

func loadCases() []Case {
	return []Case{
		{ID: "I1", Title: "a consumer is ten times slower than what comes in", Lane: Alone, act: dragConsumer},
		{ID: "I2", Title: "one key and one user want nearly everything", Lane: Alone, act: hotKeyAndUser},
	}
}

const (
	// largeEntry times the rate is some 4 MB/s: a backlog that does not fit into
	// mayGrow.
	largeEntry = 64 << 10
	dragMillis = 750
	dragFor    = 60 * time.Second
	// mayGrow is by how much a consumer process may grow while one of its consumers is
	// slow.
	mayGrow = 128 << 20
	// delayBound is what the delays of those who are not slow may come to, whatever
	// they were before, on a machine that does all of this at once.
	delayBound = 3 * time.Second
)

// dragConsumer makes one consumer ten times slower than what is offered, for as long
// as it takes to pile up more than its process may hold.
func dragConsumer(ctx context.Context, l *lane) error {
	l.Producer.MakeLarge(largeEntry)
	defer l.Producer.MakeLarge(0)
	l.hold(ctx, 10*time.Second, 10*time.Second)
	before, sizes := l.delay(ctx, "%", 8*time.Second), l.sizes()
	if _, err := l.World.DB.Exec(ctx, `INSERT INTO chaos_drags VALUES ($1, $2)`, workload.LedgerEach, dragMillis); err != nil {
		return err
	}
	l.fault("%s takes %d ms for each entry", workload.LedgerEach, dragMillis)
	defer func() {
		heal, cancel := healing(ctx)
		defer cancel()
		_, _ = l.World.DB.Exec(heal, `DELETE FROM chaos_drags`)
		l.note("%s is as fast as before", workload.LedgerEach)
	}()
	wait(ctx, dragFor)
	if ctx.Err() != nil {
		return nil
	}
	after := l.delay(ctx, "%", dragFor/2)
	l.note("99 of 100 entries reached %s within %s before and %s now", workload.LedgerTx, before, after)
	if bound := max(3*before, delayBound); after > bound {
		l.complain("%s is held up by %s: %s instead of %s", workload.LedgerTx, workload.LedgerEach, after, before)
	}
	for name, size := range l.sizes() {
		if was := sizes[name]; was > 0 && size-was > mayGrow {
			l.complain("%s has grown from %d to %d MiB behind a slow consumer", name, was>>20, size>>20)
		}
	}
	return nil
}

// delay is the time within which 99 of 100 of the facts of the last while, with keys
// like that, have come to a consumer that nobody makes slow. What has not come at all counts as it is by now.
func (l *lane) delay(ctx context.Context, keys string, of time.Duration) time.Duration {
	var seconds float64
	err := l.World.DB.QueryRow(ctx, `
		SELECT coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM coalesce(x.at, clock_timestamp()) - f.at)), 0)
		FROM chaos_facts f LEFT JOIN chaos_ledger x ON x.consumer = $1 AND x.event_id = f.event_id
		WHERE f.topic = $2 AND f.kind = 'plain' AND f.key LIKE $3 AND f.at BETWEEN clock_timestamp() - $4::interval AND clock_timestamp() - interval '1 s'`,
		workload.LedgerTx, string(workload.Ledger), keys, of).Scan(&seconds)
	if err != nil {
		return 0
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
}

// sizes are the resident sizes of the consumer processes, by name, in bytes.
func (l *lane) sizes() map[string]int64 {
	sizes := map[string]int64{}
	for _, m := range l.World.Part(world.Consumer) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				sizes[m.Name] = kib << 10
			}
		}
	}
	return sizes
}

const (
	hotFor     = 15 * time.Second
	hotWriters = 6
	// hotPause between two facts of a writer keeps what is offered below what the
	// installation carries: the case is about the one key, not about too much of all.
	hotPause = 25 * time.Millisecond
	// floodSize times floodSleep over the slots is how long one user keeps everything
	// busy.
	floodSize  = 600
	floodSleep = "300ms"
	calmUsers  = 10
)

// hotKeyAndUser has nine of ten facts be of one key, and one user ask for hundreds of
// executions before others ask for one each.
func hotKeyAndUser(ctx context.Context, l *lane) error {
	tag := fmt.Sprintf("%x", l.rng.Uint32())
	l.hold(ctx, 8*time.Second, 8*time.Second)
	before := l.delay(ctx, "%", 8*time.Second)
	l.fault("nine of ten facts are of the key hot-%s", tag)
	hot, stop := context.WithTimeout(ctx, hotFor)
	defer stop()
	var writers sync.WaitGroup
	for w := range hotWriters {
		writers.Go(func() {
			for i := 0; hot.Err() == nil; i++ {
				// A key has one writer.
				key := fmt.Sprintf("hot-%s-%d", tag, w)
				if i%10 == 0 {
					key = fmt.Sprintf("cold-%s-%d-%d", tag, w, i)
				}
				if _, err := l.Producer.Commit(ctx, workload.Ledger, key, workload.Entry{Kind: workload.Plain}); err != nil {
					return
				}
				wait(hot, hotPause)
			}
		})
	}
	writers.Wait()
	wait(ctx, delayBound)
	if ctx.Err() != nil {
		return nil
	}
	cold := l.delay(ctx, "cold-"+tag+"-%", 2*hotFor)
	l.note("99 of 100 facts reached %s within %s before, those of other keys within %s", workload.LedgerTx, before, cold)
	if cold > max(3*before, 2*delayBound) {
		l.complain("facts of other keys took %s behind a hot one, %s before it", cold, before)
	}
	return l.flood(ctx, tag)
}

// flood asks for hundreds of executions of one user and then for one of each of some
// others, which must not wait until the first one has everything.
func (l *lane) flood(ctx context.Context, tag string) error {
	ask := func(user string) client.Request {
		spec, _ := json.Marshal(client.FunctionSpec{Name: "sleep", Args: json.RawMessage(`{"duration": "` + floodSleep + `"}`)})
		return client.Request{Executor: "function", Spec: spec, User: user, Labels: map[string]string{"workload": "chaos"}}
	}
	var many, few []client.Request
	for range floodSize {
		many = append(many, ask("flood-"+tag))
	}
	for i := range calmUsers {
		few = append(few, ask(fmt.Sprintf("calm-%s-%d", tag, i)))
	}
	l.fault("flood-%s asks for %d executions", tag, floodSize)
	if _, err := l.Requests.Flood(ctx, many); err != nil {
		return err
	}
	if _, err := l.Requests.Flood(ctx, few); err != nil {
		return err
	}
	const waiting = `SELECT count(*) FROM executions WHERE user_name LIKE $1 AND scheduled_at IS NULL AND finished_at IS NULL`
	err := until(ctx, patience, "the calm users' executions are admitted", func() (bool, error) {
		n, err := workload.Count(ctx, l.World.DB, waiting, "calm-"+tag+"-%")
		return n == 0, err
	})
	if err != nil {
		return err
	}
	left, err := workload.Count(ctx, l.World.DB, waiting, "flood-"+tag)
	if err != nil {
		return err
	}
	l.note("%d of the flood waited when everybody else was served", left)
	if left < floodSize/2 {
		l.complain("the calm users waited for more than half of the flood: %d of %d were left", left, floodSize)
	}
	return nil
}
