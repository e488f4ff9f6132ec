package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	binaries "github.com/millrace/millrace/internal/testenv/program"
)

// killedInstances is how many instances TestWorkflowsKilled runs per mode. Its long form is
//
//	MILLRACE_TEST_REAL=1 go test ./e2e -run TestWorkflowsKilled -timeout 2h -args -workflows.instances=10000
var killedInstances = flag.Int("workflows.instances", 320, "how many instances TestWorkflowsKilled runs in each dispatch mode")

// TestWorkflowsKilled kills the engine, the relay and the workers in turn while instances of
// ten steps are under way. Nothing may be lost, and nothing done twice: every instance
// completes, each of its steps is one job and one effect, each step saw the result of
// the one before, and no lease was ever worked on by two.
func TestWorkflowsKilled(t *testing.T) {
	for _, mode := range []string{polling, kafkaOutbox} {
		t.Run(mode, func(t *testing.T) {
			in := installReal(t, "jobs.dispatch_mode="+mode)
			k := &killing{in: in, mode: mode, address: freeAddress(t), grpc: freeAddress(t)}
			k.run(*killedInstances)
		})
	}
}

// killing is an installation whose processes are killed in turn.
type killing struct {
	in            *installation
	mode          string
	address, grpc string

	engine, relay *process
	workers       [2]*binaries.Process
	launched      int
}

// rounds is how often each victim is killed.
const rounds = 2

func (k *killing) run(instances int) {
	in, t := k.in, k.in.t
	_, err := in.db.Exec(t.Context(), `
		CREATE TABLE kill_runs (job_id text NOT NULL, token bigint NOT NULL, worker text NOT NULL, at timestamptz NOT NULL);
		CREATE TABLE kill_effects (job_id text PRIMARY KEY, instance_id text NOT NULL, step_id text NOT NULL, token bigint NOT NULL, worker text NOT NULL, at timestamptz NOT NULL)`)
	require.NoError(t, err)
	k.startEngine()
	k.startRelay()
	for i := range k.workers {
		k.startWorker(i)
	}
	victims := []func(){
		func() { k.engine.sigkill(); k.startEngine() },
		func() { k.relay.sigkill(); k.startRelay() },
		func() { k.killWorker(0) },
		func() { k.killWorker(1) },
	}
	kills := rounds * len(victims)
	from := 0
	for n := range kills {
		batch := instances * (n + 1) / kills
		k.startInstances(from, batch-from)
		open := `SELECT count(*) FROM wf_instances WHERE status = 'ACTIVE'`
		before := in.count(`SELECT count(*) FROM kill_effects`)
		await(t, stuckAfter, "steps are done", func() bool { return in.count(`SELECT count(*) FROM kill_effects`) > before })
		if in.count(open) == 0 {
			t.Logf("kill %d met nothing under way", n)
		}
		victims[n%len(victims)]()
		from = batch
	}
	k.settle(instances)
	k.judge(instances)
	in.stopAll()
}

func (k *killing) startEngine() {
	k.engine = k.in.serve("engine", "api,workflows,maintenance", "--api-listen", k.address, "--grpc-listen", k.grpc).ready()
}

func (k *killing) startRelay() { k.relay = k.in.serve("relay", "relay").ready() }

// startWorker starts a worker under an id that no other has had: the one that was killed
// still holds its leases. One of them talks REST, the other gRPC.
func (k *killing) startWorker(i int) {
	k.launched++
	args := []string{"-id", fmt.Sprintf("worker-%d", k.launched), "-dsn", k.in.dsn}
	if i == 0 {
		args = append(args, "-rest", "http://"+k.address)
	} else {
		args = append(args, "-grpc", k.grpc)
	}
	if k.mode == kafkaOutbox {
		args = append(args, "-kafka", strings.Join(k.in.brokers, ","))
	}
	k.workers[i] = k.launch(args...)
}

func (k *killing) launch(args ...string) *binaries.Process {
	t := k.in.t
	p, err := binaries.Start(binaries.Launch{
		Binary: userProgram(t, workflowWorker), Args: args, Env: []string{"MILLRACE_API_AUTH_TOKEN=" + k.in.token}, Home: k.in.dir,
		Output: filepath.Join(t.ArtifactDir(), fmt.Sprintf("%02d-sdk-worker", launches.Add(1))),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, p.Kill())
		if t.Failed() {
			log, _ := p.Log()
			t.Logf("--- log of a worker of the SDK (pid %d)\n%s", p.PID(), tail(log, 40))
		}
	})
	return p
}

func (k *killing) killWorker(i int) {
	require.NoError(k.in.t, k.workers[i].Kill())
	k.startWorker(i)
}

// startInstances has the SDK start instances, and returns when the engine has them all.
func (k *killing) startInstances(from, n int) {
	t := k.in.t
	if n == 0 {
		return
	}
	p := k.launch("-rest", "http://"+k.address, "-start", fmt.Sprint(n), "-from", fmt.Sprint(from))
	code, err := p.Wait(t.Context())
	require.NoError(t, err)
	if code != 0 {
		log, _ := p.Log()
		t.Fatalf("starting instances ended with %d\n%s", code, tail(log, 20))
	}
}

// settle waits for the end of all instances, as long as there is progress.
func (k *killing) settle(instances int) {
	in, t := k.in, k.in.t
	last, since := -1, time.Now()
	await(t, time.Hour, "all instances have ended", func() bool {
		done := in.count(`SELECT coalesce(sum(version), 0) FROM wf_instances`)
		if done != last {
			last, since = done, time.Now()
		}
		if time.Since(since) > 2*stuckAfter {
			require.Fail(t, fmt.Sprintf("nothing moves: %d of %d instances are open, jobs: %s", in.count(`SELECT count(*) FROM wf_instances WHERE status <> 'COMPLETED'`), instances,
				k.text(`SELECT string_agg(x.s, ', ') FROM (SELECT status || ' ' || count(*) AS s FROM jobs GROUP BY status) x`)))
		}
		return in.count(`SELECT count(*) FROM wf_instances WHERE status IN ('COMPLETED', 'FAILED', 'CANCELLED')`) == instances
	})
}

func (k *killing) text(sql string) (text string) {
	if err := k.in.db.QueryRow(k.in.t.Context(), sql).Scan(&text); err != nil {
		return err.Error()
	}
	return text
}

// judge asserts that nothing was lost and nothing done twice.
func (k *killing) judge(instances int) {
	in, t := k.in, k.in.t
	t.Helper()
	assert.Equal(t, instances, in.count(`SELECT count(*) FROM wf_instances WHERE status = 'COMPLETED'`), "instances that completed")
	assert.Equal(t, instances, in.count(`SELECT count(*) FROM wf_instances`), "instances: each start counted once")
	assert.Equal(t, 10*instances, in.count(`SELECT count(*) FROM kill_effects`), "effects: one per job")
	assert.Equal(t, 10*instances, in.count(`SELECT count(DISTINCT (instance_id, step_id)) FROM kill_effects`), "effects: one per step of an instance")
	assert.Equal(t, instances, in.count(`SELECT count(*) FROM wf_instances WHERE (variables->>'count')::int = 10`), "instances whose steps counted to ten")
	assert.Equal(t, instances, in.count(`SELECT count(*) FROM wf_instances WHERE (variables->'trail')::jsonb = (
		SELECT jsonb_agg('killed-step-' || n ORDER BY n) FROM generate_series(1, 10) n)`), "instances whose steps came in order, each once")
	// A worker that could not report, since the engine was away, may read its record again and
	// still has the lease.
	twice := in.texts(`SELECT job_id || ' token ' || token || ': ' || string_agg(worker || ' at ' || at, ', ' ORDER BY at) FROM kill_runs
		GROUP BY job_id, token HAVING count(DISTINCT worker) > 1`)
	assert.Empty(t, twice, "leases that were worked on by two")
	assert.Zero(t, in.count(`SELECT count(*) FROM jobs WHERE status IN ('UNLOCKED', 'LOCKED', 'FAILED')`), "jobs that are open or failed")
	await(t, stuckAfter, "the outbox is empty", func() bool { return in.count(`SELECT count(*) FROM outbox_events WHERE status = 'PENDING'`) == 0 })
	repeated := in.count(`SELECT count(*) FROM kill_runs`) - 10*instances
	t.Logf("%d instances of ten steps completed; %d attempts were lost with a process and made again", instances, repeated)
}
