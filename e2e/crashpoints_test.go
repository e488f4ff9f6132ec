package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/crash"
	"github.com/millrace/millrace/internal/testenv/realkafka"
)

// backRoles are those of the second process of a crash test: all but the API.
const backRoles = "workflows,coordinator,worker,relay,maintenance,projections"

// crashLanes is over how many installations the points are spread. They run at
// the same time, since most of a crash is waiting for leases.
const crashLanes = 4

// Every crash point is reached, in a real process, and what was under way is
// neither lost nor doubled nor put out of order. Each point has its own workload
// and judgement; an installation serves several of them.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	points := slices.DeleteFunc(selected(crash.Points()), ofOthers)
	for lane := range slices.Chunk(points, max(1, (len(points)+crashLanes-1)/crashLanes)) {
		t.Run("from "+lane[0].Name, func(t *testing.T) {
			t.Parallel()
			in := installEmbedded(t, crashSettings()...)
			newCrasher(in).each(lane, func(crash.Point) bool { return true })
		})
	}
}

// The same on real Kafka, all in one installation. After some of the crashes
// nothing is hurried: leases and memberships of the dead run out by themselves.
func TestCrashPointsOnKafka(t *testing.T) {
	realkafka.Require(t)
	t.Parallel()
	in := installReal(t, crashSettings()...)
	unhurried := []string{"relay.published", "consumer.committed", "worker.running"}
	newCrasher(in).each(slices.DeleteFunc(selected(crash.Points()), ofOthers), func(p crash.Point) bool { return !slices.Contains(unhurried, p.Name) })
}

// ofOthers says whether a point is for tests of its own.
func ofOthers(p crash.Point) bool { return ofSagas(p) || ofPods(p) || ofTriggers(p) || ofSchedules(p) }

// onlyPoints selects points, for those who look for what is wrong with them.
var onlyPoints = flag.String("crash-point", "", "crash at these points only, separated by commas")

func isSelected(point string) bool {
	return *onlyPoints == "" || slices.Contains(strings.Split(*onlyPoints, ","), point)
}

func selected(points []crash.Point) []crash.Point {
	return slices.DeleteFunc(points, func(p crash.Point) bool { return !isSelected(p.Name) })
}

func crashSettings() []string {
	return []string{"worker.lease=2s", "worker.heartbeat=500ms"}
}

// crasher kills the processes of an installation at points.
type crasher struct {
	in          *installation
	front, back *process
	other       *process // a worker that reads tasks of a class that it does not serve, for one point
	trace       string
	kafka       *kgo.Client
	alive       string // what the groups of other programs have in their names; they keep their members
	poisoned    int    // records that no consumer can read
	letters     int    // letters that were put there to be redriven
}

func newCrasher(in *installation) *crasher {
	c := crasherOf(in)
	c.trace = traceFile(in.t, in.dir)
	c.serve(backRoles)
	return c
}

// crasherOf is a crasher of which no process runs yet.
func crasherOf(in *installation) *crasher {
	in.crashFile = filepath.Join(in.dir, "crash")
	kafka, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(in.t, err)
	in.t.Cleanup(kafka.Close)
	return &crasher{in: in, kafka: kafka}
}

// serve starts the API, and a process with the roles.
func (c *crasher) serve(roles string) {
	c.front, c.back = c.in.serve("front", "api"), c.in.serve("back", roles)
	c.front.ready()
	c.back.ready()
}

// arm has a process die when it passes a point for the given time, from 1.
func (c *crasher) arm(point string, passing int) {
	arm := filepath.Join(c.in.dir, "arm")
	require.NoError(c.in.t, os.WriteFile(arm, fmt.Appendf(nil, "%s %d", point, passing), 0o600))
	require.NoError(c.in.t, os.Rename(arm, c.in.crashFile))
}

// each takes the points one after the other. Where hurry says so, it ends the
// leases and memberships of dead processes, as time would.
func (c *crasher) each(points []crash.Point, hurry func(crash.Point) bool) {
	for _, point := range points {
		c.crash(point, hurry(point))
	}
	c.in.stopAll()
}

// crash arms a point, starts work that passes it, waits for the process to die
// there, and judges what has become of the work after a restart.
func (c *crasher) crash(point crash.Point, hurry bool) {
	t, in := c.in.t, c.in
	defer c.blame(point.Name)
	began := time.Now()
	if ofRedrives(point) {
		c.plant()
	}
	if ofReplays(point) {
		c.record(point)
	}
	if point.Name == "lease.taken" { // once, at the start
		c.replace(point, hurry)
	} else {
		c.arm(point.Name, 1)
	}

	all := c.workload(point)
	switch {
	case ofLetters(point):
		c.poison()
	case point.Name == "worker.offered":
		c.readElsewhere()
	}
	refused := c.insist(point, all)
	died := c.awaitDeath(point)
	reached := time.Since(began)
	in.holds()

	c.bury(hurry)
	c.restart(died)
	if refused != nil {
		require.NoError(t, c.insist(point, all), "a process died at its restart")
	}
	w := newWorkload(in, c.front.client())
	ids := make([]string, len(all))
	for i, p := range all {
		ids[i] = p.id
	}
	w.accepted(all, ids)
	w.finish()
	c.judge(point, w.client, all)
	c.over(point.Name, began, reached)
}

// blame says, of a test that failed, at which crash it did; defer it.
func (c *crasher) blame(what string) {
	if c.in.t.Failed() {
		assert.Fail(c.in.t, "that was the crash at "+what)
	}
}

// over says how long a crash took, and ends a test where not all was as it should be
// behind it, since that is what the next one would start from.
func (c *crasher) over(what string, began time.Time, reached time.Duration) {
	t := c.in.t
	t.Helper()
	t.Logf("%s: reached after %s, all done after %s", what, reached.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if t.Failed() {
		t.FailNow()
	}
}

// replace kills the process behind the API, and has the next one meet the point.
func (c *crasher) replace(point crash.Point, hurry bool) {
	c.back.sigkill()
	c.arm(point.Name, 1)
	c.bury(hurry)
	c.back = c.in.serve(c.back.name, backRoles)
}

// insist offers a workload until it is accepted or somebody dies, and returns why it was not
// accepted: as a rule because who was asked has died.
func (c *crasher) insist(point crash.Point, all []*program) error {
	refused := c.offer(point, all)
	if refused != nil {
		c.in.t.Logf("%s: its work is refused: %v", point.Name, refused)
		c.in.await("the work of "+point.Name+" is accepted, or a process dies", func() bool {
			if c.dead() == nil {
				refused = c.offer(point, all)
			}
			return refused == nil || c.dead() != nil
		})
	}
	return refused
}

// offer asks once for everything that a point's workload asks the API for. All of it may
// be asked for again.
func (c *crasher) offer(point crash.Point, all []*program) error {
	api := c.front.client()
	requests := make([]client.Request, len(all))
	for i, p := range all {
		requests[i] = p.request
	}
	ids, err := submitOnce(c.in.t.Context(), api, requests)
	for i, id := range ids {
		all[i].id = id
	}
	if err == nil && ofRedrives(point) {
		err = c.redrive(api)
	}
	if err == nil && ofEngine(point) {
		err = c.instance(c.in.t.Context(), point, api)
	}
	if err == nil && ofReplays(point) {
		err = c.replay(point, api)
	}
	if err == nil && ofRebuilds(point) {
		err = c.rebuild(point, api)
	}
	return err
}

// workload is a little of everything: quick programs, one that writes while it
// runs, one that runs into a limit, and a chain that has to keep its order.
func (c *crasher) workload(point crash.Point) []*program {
	text := func(n int) string { return fmt.Sprintf("%s %d\n", point.Name, n) }
	script := func(n int, between string) *program {
		p := run(client.ProcessSpec{
			Command: sh("printf '" + strings.TrimSuffix(text(n), "\n") + "'; " + between + "echo; trace end"), Env: map[string]string{"E2E_TRACE": c.trace},
		}, want{state: client.Completed, stdout: fixed(text(n))})
		p.kind = "quick"
		return &p
	}
	all := []*program{script(0, ""), script(1, ""), script(2, c.lasting(point, "sleep 1.2; ")), script(3, ""), script(4, ""), script(5, "")}
	for _, p := range all[3:] {
		p.kind, p.request.ConcurrencyKey = "chained", point.Name
	}
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	limited := run(client.ProcessSpec{Command: sh("trace end"), Env: map[string]string{"E2E_TRACE": c.trace}},
		want{state: client.TimedOut, reason: "total_limit", limit: "total"})
	limited.kind, limited.request.NotBefore, limited.request.Limits = "limited", &later, &client.Limits{Total: "300ms"}
	all = append(all, &limited)
	if point.Name == "worker.offered" {
		for range 24 { // so that some lie in the partitions of either worker
			all = append(all, script(len(all), ""))
		}
	}
	for i, p := range all {
		p.request.IdempotencyKey = fmt.Sprintf("%s-%d", point.Name, i)
	}
	return all
}

// lasting is what keeps a program at work until somebody dies at a point that is passed while
// one runs, however late it is; at any other point it does what it does otherwise.
func (c *crasher) lasting(point crash.Point, otherwise string) string {
	if point.Name != "worker.output_appended" && point.Name != "worker.renewed" {
		return otherwise
	}
	return fmt.Sprintf("while [ -e '%s' ]; do sleep 0.02; done; ", c.in.crashFile)
}

// awaitDeath waits until one of the processes has killed itself at the point.
func (c *crasher) awaitDeath(point crash.Point) *process {
	t := c.in.t
	t.Helper()
	var died *process
	c.in.await("a process dies at "+point.Name+", that is, the point is passed", func() bool {
		died = c.dead()
		return died != nil
	})
	var exit *exec.ExitError
	require.ErrorAs(t, died.child.Err(), &exit, "%s\n%s", died.name, tail(died.log(), 20))
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, status.Signal(), "%s ended with %v\n%s", died.name, exit, tail(died.log(), 20))
	mark, err := os.ReadFile(c.in.crashFile + ".crashed")
	require.NoError(t, err, "it was killed by somebody else")
	require.Equal(t, fmt.Sprintf("%s %d\n", point.Name, died.child.PID()), string(mark))
	require.NoError(t, os.Remove(c.in.crashFile+".crashed"))
	return died
}

// dead is the process that has ended, or nil.
func (c *crasher) dead() *process {
	for _, p := range []*process{c.front, c.back, c.other} {
		if p != nil && !p.running() {
			return p
		}
	}
	return nil
}

// bury ends what a dead process has left behind and what runs out by itself later:
// its leases, and its memberships in consumer groups. What its worker held is left
// to run out, since its programs may still be on their way to their end.
func (c *crasher) bury(hurry bool) {
	if !hurry || c.back.running() {
		return
	}
	t := c.in.t
	for _, sql := range []string{
		`UPDATE leases SET expires_at = clock_timestamp() - interval '1 ms' WHERE expires_at > clock_timestamp()`,
		`DELETE FROM lease_members`, `DELETE FROM workers`,
	} {
		_, err := c.in.db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	evict(t, c.kafka, func(group string) bool { return c.alive == "" || !strings.Contains(group, c.alive) })
}

// evict ends the memberships of consumer groups, as time would once nobody is heard of.
func evict(t *testing.T, kafka *kgo.Client, from func(group string) bool) {
	t.Helper()
	admin := kadm.NewClient(kafka)
	groups, err := admin.DescribeGroups(t.Context())
	require.NoError(t, err)
	for _, g := range groups.Sorted() {
		request := kmsg.NewPtrLeaveGroupRequest()
		if request.Group = g.Group; !from(g.Group) {
			continue
		}
		for _, m := range g.Members {
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID = m.MemberID
			request.Members = append(request.Members, member)
		}
		if len(request.Members) > 0 {
			_, err := request.RequestWith(t.Context(), kafka)
			require.NoError(t, err)
		}
	}
}

// readElsewhere starts a worker of another class and waits until it owns some of the
// partitions of the tasks.
func (c *crasher) readElsewhere() {
	c.other = c.in.serve("elsewhere", "worker", "--worker-classes", "elsewhere").ready()
	const owned = `SELECT count(*) FROM consumer_reports WHERE consumer = 'worker' AND instance LIKE '%-' || $1 || '-%'`
	c.in.await("two workers share the tasks", func() bool {
		return c.in.count(owned, strconv.Itoa(c.other.child.PID())) > 0 && c.in.count(owned, strconv.Itoa(c.back.child.PID())) > 0
	})
}

func (c *crasher) restart(died *process) {
	switch died {
	case c.other:
		c.other = nil
	case c.back:
		c.back = c.in.serve(died.name, backRoles).ready()
	default:
		c.front = c.in.serve(died.name, "api").ready()
	}
}

// judge checks that everything is there once, and in order.
func (c *crasher) judge(point crash.Point, api *client.Client, all []*program) {
	t, in := c.in.t, c.in
	in.settled()
	c.judgeOwn(point)
	in.settled()
	in.verified()
	in.results(api, all)
	assert.Equal(t, len(all), in.count(`SELECT count(*) FROM executions WHERE id::text = ANY($1)`, idsOf(all)))
	assert.Zero(t, in.count(`SELECT count(*) FROM idempotency_keys k WHERE NOT EXISTS (SELECT FROM executions e WHERE e.id = k.execution_id)`))
	assert.Zero(t, in.count(`SELECT count(*) FROM executions e WHERE NOT EXISTS (SELECT FROM idempotency_keys k WHERE e.id = k.execution_id)`),
		"executions beyond those that were asked for")
	steps := readTrace(t, c.trace)
	var chain []string
	for _, p := range all {
		assert.Empty(t, overlaps(steps[p.id]), "%s %s", p.kind, p.id)
		if p.kind == "chained" {
			chain = append(chain, p.id)
		}
	}
	assert.Equal(t, chain, in.texts(fmt.Sprintf(`SELECT id::text FROM executions WHERE concurrency_key = '%s' ORDER BY finished_at`, all[3].request.ConcurrencyKey)),
		"the order of the chain")
}

// judgeOwn judges what a point's workload has beside executions. It goes on by itself when
// these have ended, and has ended behind this.
func (c *crasher) judgeOwn(point crash.Point) {
	switch {
	case ofLetters(point) || ofRedrives(point):
		c.judgeLetters()
	case ofEngine(point):
		c.judgeInstance(point)
	case ofReplays(point):
		c.judgeReplay(point)
	case ofRebuilds(point):
		c.judgeRebuild(point)
	}
}

func idsOf(all []*program) []string {
	ids := make([]string, len(all))
	for i, p := range all {
		ids[i] = p.id
	}
	return ids
}

// Nothing that could be armed is in the program that people run.
func TestShippedProgramHasNoCrashPoints(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]bool{"": false, crashable: true} {
		program, err := os.ReadFile(binary(t, tag))
		require.NoError(t, err)
		assert.Equal(t, want, bytes.Contains(program, []byte("CRASHPOINT_FILE")), "with tag %q", tag)
	}
}
