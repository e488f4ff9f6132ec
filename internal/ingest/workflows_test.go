package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/workflow"

	"github.com/millrace/millrace/internal/postgres"
)

// instances are the numbers of the instances that there are.
func (b *bench) instances() []string {
	b.t.Helper()
	return b.strings(`SELECT variables->>'n' FROM wf_instances ORDER BY 1`)
}

func setupWorkflows(t *testing.T, change ...func(*ingest.Config)) (*bench, *plans) {
	t.Helper()
	known := &plans{known: map[string]*workflow.Plan{}}
	known.define(t, waiting)
	dsn := testenv.Database(t, postgres.MigrateDSN)
	_, use := withEngine(t, dsn, known)
	return process(t, dsn, uuid.NewString(), append([]func(*ingest.Config){use}, change...)...), known
}

func TestMessagesBecomeInstances(t *testing.T) {
	t.Parallel()
	b, _ := setupWorkflows(t)
	target := b.kafka(toWorkflow)
	first := b.create(target, records(0, 3, func(m *ingest.Message) { m.Identity = fmt.Sprint("e", m.Place.Offset) })...)
	assert.Equal(t, []ingest.Status{ingest.Created, ingest.Created, ingest.Created}, statuses(first))
	assert.Equal(t, trigger.KindInstance, first[0].Kind)
	assert.Equal(t, []string{first[1].ID}, b.strings(`SELECT id::text FROM wf_instances WHERE variables->>'n' = '1' AND tenant = 'acme'`))

	origins := b.strings(`SELECT origin::text FROM wf_instances WHERE id = $1`, first[1].ID)
	assert.JSONEq(t, `{"kind": "kafka", "trigger": "orders", "metadata": {"topic": "orders", "offset": 1}}`, origins[0])

	again := b.create(target, record(1, `{"n": 1}`), record(7, `{"n": 7}`, identity("e1")), record(8, `{"n": 8}`, identity("x")), record(9, `{"n": 8}`, identity("x")))
	assert.Equal(t, []ingest.Status{ingest.Duplicate, ingest.Duplicate, ingest.Created, ingest.Duplicate}, statuses(again))
	assert.Equal(t, first[1].ID, again[0].ID)
	assert.Equal(t, first[1].ID, again[1].ID)
	assert.Equal(t, again[2].ID, again[3].ID)
	assert.Equal(t, []string{"0", "1", "2", "8"}, b.instances())
	for _, k := range b.keys() {
		assert.Contains(t, k, " instance/", "no promise is left")
	}
}

// deaf are workflows whose starts happen, or not, and whose caller dies all the same.
type deaf struct {
	ingest.Workflows
	starts bool
	die    func()
}

func (d deaf) StartInOrder(ctx context.Context, rs []engine.StartRequest) ([]engine.Instance, []error) {
	errs := make([]error, len(rs))
	if d.starts {
		_, errs = d.Workflows.StartInOrder(ctx, rs)
	}
	d.die()
	return make([]engine.Instance, len(rs)), errs
}

// A process dies between the promise and the start, or between the start and the note:
// whoever comes again starts the same instances, once.
func TestAPromiseIsKeptByWhoeverMeetsIt(t *testing.T) {
	t.Parallel()
	for name, started := range map[string]bool{"before the start": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dying *bench
			b, _ := setupWorkflows(t)
			dying = process(t, b.dsn, b.uid, func(c *ingest.Config) {
				known := &plans{known: map[string]*workflow.Plan{}}
				known.define(t, waiting)
				e, _ := withEngine(t, b.dsn, known)
				c.Workflows = deaf{e, started, func() { dying.pool.Close() }}
			})
			messages := records(0, 3, func(m *ingest.Message) { m.Identity = fmt.Sprint("e", m.Place.Offset) })
			outcomes, err := dying.Create(t.Context(), dying.kafka(toWorkflow), messages)
			require.Error(t, err)
			assert.Empty(t, outcomes)
			promised := b.strings(`SELECT DISTINCT target FROM processed_events ORDER BY 1`)
			assert.Len(t, promised, 3)
			assert.Len(t, b.instances(), map[bool]int{false: 0, true: 3}[started])

			// Some come again at another place.
			messages[1].Place.Offset = 100
			made := b.create(b.kafka(toWorkflow), messages...)
			assert.Equal(t, []ingest.Status{ingest.Created, ingest.Created, ingest.Created}, statuses(made))
			var ids []string
			for _, o := range made {
				ids = append(ids, "starting/"+o.ID)
			}
			assert.ElementsMatch(t, promised, ids, "under the ids that were promised")
			assert.Equal(t, []string{"0", "1", "2"}, b.instances())
			assert.Equal(t, []ingest.Status{ingest.Duplicate, ingest.Duplicate, ingest.Duplicate}, statuses(b.create(b.kafka(toWorkflow), messages...)))
		})
	}
}

// The target of a trigger changes while there are promises.
func TestAPromiseAndANewTarget(t *testing.T) {
	t.Parallel()
	b, _ := setupWorkflows(t)
	for n, started := range []bool{false, true} {
		dying := process(t, b.dsn, b.uid)
		dying = process(t, b.dsn, b.uid, func(c *ingest.Config) {
			known := &plans{known: map[string]*workflow.Plan{}}
			known.define(t, waiting)
			e, _ := withEngine(t, b.dsn, known)
			c.Workflows = deaf{e, started, func() { dying.pool.Close() }}
		})
		_, err := dying.Create(t.Context(), dying.kafka(toWorkflow), records(int64(n), int64(n)+1))
		require.Error(t, err)
	}
	outcomes := b.create(b.kafka(toFunction), records(0, 2)...)
	assert.Equal(t, []ingest.Status{ingest.Created, ingest.Duplicate}, statuses(outcomes))
	assert.Equal(t, trigger.KindInstance, outcomes[1].Kind)
	assert.Equal(t, []string{"0"}, b.made())
	assert.Equal(t, []string{"1"}, b.instances())
	assert.Equal(t, outcomes, markDuplicates(b.create(b.kafka(toFunction), records(0, 2)...), outcomes))
}

// markDuplicates are the outcomes of a repetition as those of the first time.
func markDuplicates(again, first []ingest.Outcome) []ingest.Outcome {
	for i := range again {
		if again[i].Status == ingest.Duplicate {
			again[i].Status = first[i].Status
		}
	}
	return again
}

func TestInstancesThatAreAskedForByManyAtOnceAreStartedOnce(t *testing.T) {
	t.Parallel()
	b, known := setupWorkflows(t)
	_, use := withEngine(t, b.dsn, known)
	processes := []*bench{b, process(t, b.dsn, b.uid, use)}
	var wait sync.WaitGroup
	for p, process := range processes {
		target := process.kafka(toWorkflow)
		for turn := range 2 {
			wait.Go(func() {
				for n := range int64(30) {
					m := record(n+1000*int64(2*p+turn), fmt.Sprintf(`{"n": %d}`, n), identity(fmt.Sprint("e", n)))
					outcomes, err := process.Create(t.Context(), target, []ingest.Message{m})
					if assert.NoError(t, err) {
						assert.NotEmpty(t, outcomes[0].ID)
					}
				}
			})
		}
	}
	wait.Wait()
	assert.Equal(t, 30, b.count(`SELECT count(*) FROM wf_instances`))
	assert.Equal(t, 30, b.count(`SELECT count(DISTINCT target) FROM processed_events`))
}

func TestAWorkflowThatIsNotThereStalls(t *testing.T) {
	t.Parallel()
	b, known := setupWorkflows(t)
	target := b.kafka(`{"workflow": {"id": "later", "input": {"n": "${body.n}"}}}`)
	b.stopped(target, 0, "unknown_workflow", records(0, 2)...)
	known.define(t, `{"id": "later", "name": "Later", "steps": [
		{"id": "w", "name": "W", "type": "WAIT", "signalName": "go", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	b.create(target, records(0, 2)...)
	assert.Equal(t, []string{"0", "1"}, b.instances())

	// What lies behind it waits, also where its own workflow is there.
	either := b.kafka(`{"workflow": {"id": "${body.to}", "input": {"n": "${body.n}"}}}`)
	mixed := []ingest.Message{
		record(10, `{"n": 10, "to": "later"}`), record(11, `{"n": 11, "to": "latest"}`), record(12, `{"n": 12, "to": "later"}`),
	}
	b.stopped(either, 1, "unknown_workflow", mixed...)
	assert.Equal(t, []string{"0", "1", "10"}, b.instances())
	known.define(t, `{"id": "latest", "name": "Latest", "steps": [
		{"id": "w", "name": "W", "type": "WAIT", "signalName": "go", "nextStep": "end"}, {"id": "end", "name": "End", "type": "END"}]}`)
	b.create(either, mixed[1:]...)
	assert.Equal(t, []string{"0", "1", "10", "11", "12"}, b.instances())

	without := process(t, b.dsn, b.uid)
	without.stopped(target, 0, "workflows_off", records(5, 6)...)
}

// refusing are workflows that refuse what has a number.
type refusing struct {
	ingest.Workflows
	of map[string]error
}

func (w refusing) StartInOrder(ctx context.Context, rs []engine.StartRequest) ([]engine.Instance, []error) {
	found, errs := w.Workflows.StartInOrder(ctx, rs)
	for i, r := range rs {
		if err := w.of[string(r.Variables)]; err != nil {
			errs[i] = err
		}
	}
	return found, errs
}

func TestWhatTheEngineRefusesIsJudgedForItself(t *testing.T) {
	t.Parallel()
	invalid := workflow.Refuse(engine.ErrInvalid, "not like this")
	faults := map[string]error{`{"n":1}`: invalid, `{"n":3}`: engine.ErrOverloaded, `{"n":6}`: errors.New("who knows")}
	b, _ := setupWorkflows(t, func(c *ingest.Config) { c.Workflows = refusing{c.Workflows, faults} })
	target := b.kafka(toWorkflow, `"limits": {"open": 10}, "limit_action": "stall"`)
	outcomes := b.stopped(target, 3, "overloaded", records(0, 5)...)
	assert.Equal(t, []ingest.Status{ingest.Created, ingest.Refused, ingest.Created}, statuses(outcomes))
	assert.Equal(t, 1, b.count(`SELECT count(*) FROM dead_letters`))
	delete(faults, `{"n":3}`)
	b.create(target, records(3, 5)...)
	assert.Equal(t, 4, b.count(`SELECT count(*) FROM trigger_targets`))
	b.stopped(target, 1, "internal", records(5, 7)...)

	stalling := b.kafka(toWorkflow, `"on_poison": "stall"`)
	b.stopped(stalling, 0, "poison", records(1, 2)...)
}

func TestALimitOfInstances(t *testing.T) {
	t.Parallel()
	b, _ := setupWorkflows(t)
	target := b.kafka(toWorkflow, `"limits": {"open": 2}, "limit_action": "stall"`)
	b.stopped(target, 2, "limit_reached", records(0, 4)...)
	assert.Equal(t, []string{"0", "1"}, b.instances())
	_, err := b.pool.Exec(t.Context(), `UPDATE wf_instances SET ended_at = now() WHERE variables->>'n' = '0'`)
	require.NoError(t, err)
	b.stopped(target, 1, "limit_reached", records(2, 4)...)
	assert.Equal(t, []string{"0", "1", "2"}, b.instances())
}
