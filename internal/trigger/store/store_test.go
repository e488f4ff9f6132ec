package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/store"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// bench is a database with a store, which follows itself and counts its wake-ups.
type bench struct {
	*store.Store
	t    *testing.T
	pool *pgxpool.Pool

	mutex    sync.Mutex
	wakes    int
	followed []string
	refusal  error
}

func (b *bench) Wake(string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.wakes++
}

func (b *bench) Subscribe(string) (<-chan struct{}, func()) { return nil, func() {} }

func (b *bench) TriggerChanged(_ context.Context, _ pgx.Tx, t trigger.Stored, deleted bool) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.followed = append(b.followed, fmt.Sprintf("%s@%d enabled=%t deleted=%t", t.ID, t.Revision, t.IsEnabled(), deleted))
	return b.refusal
}

func setup(t *testing.T) *bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bench{t: t, pool: pool}
	b.Store = store.New(store.Config{
		Pool: pool, Signals: b, Followers: []store.Follower{b},
		Defaults: trigger.Defaults{Brokers: []string{"ours:9092"}, Secrets: trigger.Secrets{EnvPrefix: "MILLRACE_TRIGGER_"}},
	})
	return b
}

// define reads a definition that is written as JSON, with the target of all of these.
func define(t *testing.T, text string) trigger.Definition {
	t.Helper()
	d, faults := trigger.Decode([]byte(text))
	require.Empty(t, faults)
	if d.Target == (trigger.Target{}) {
		d.Target.Execution = &trigger.ExecutionTemplate{Executor: "function", Spec: json.RawMessage(`{"name":"<f>","args":{"n":1.50,"a":"${body.a}"}}`)}
	}
	return d
}

const orders = `{"id": "orders", "kafka": {"topics": ["orders"]}}`

func ann() store.Change { return store.Change{By: "ann", Tenant: "acme", User: "ann"} }

func (b *bench) apply(text string) store.Applied {
	b.t.Helper()
	applied, err := b.Apply(b.t.Context(), define(b.t, text), ann())
	require.NoError(b.t, err)
	return applied
}

// refused applies a definition and returns the first fault that stops it.
func (b *bench) refused(text string) trigger.Fault {
	b.t.Helper()
	_, err := b.Apply(b.t.Context(), define(b.t, text), ann())
	var faults *trigger.FaultsError
	require.ErrorAs(b.t, err, &faults)
	for _, f := range faults.Faults {
		if !f.Warning {
			return f
		}
	}
	b.t.Fatal("there are warnings only")
	return trigger.Fault{}
}

func (b *bench) version() int64 {
	b.t.Helper()
	version, err := b.Version(b.t.Context())
	require.NoError(b.t, err)
	return version
}

func TestApplyMakesChangesAndLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.apply(orders)
	assert.Equal(t, store.Created, made.Status)
	assert.Equal(t, int64(1), made.Revision)
	assert.Equal(t, trigger.TypeKafka, made.Type)
	assert.Equal(t, []string{"acme", "ann", "ann", "ann"}, []string{made.Tenant, made.User, made.CreatedBy, made.UpdatedBy})
	assert.True(t, made.IsEnabled())
	assert.NotEmpty(t, made.UID)
	assert.Equal(t, int64(1), b.version())

	again, err := b.Apply(t.Context(), define(t, orders), store.Change{By: "bob", Tenant: "other", User: "bob"})
	require.NoError(t, err)
	assert.Equal(t, store.Unchanged, again.Status)
	assert.Equal(t, made.Stored, again.Stored)
	assert.Equal(t, int64(1), b.version())
	assert.Equal(t, 1, b.wakes)

	changed, err := b.Apply(t.Context(), define(t, `{"id": "orders", "user": "eve", "kafka": {"topics": ["orders", "more"]}}`), store.Change{By: "bob"})
	require.NoError(t, err)
	assert.Equal(t, store.Updated, changed.Status)
	assert.Equal(t, made.UID, changed.UID)
	assert.Equal(t, int64(2), changed.Revision)
	assert.Equal(t, []string{"acme", "eve", "ann", "bob"}, []string{changed.Tenant, changed.User, changed.CreatedBy, changed.UpdatedBy})
	assert.Equal(t, int64(2), b.version())
	assert.Equal(t, []string{"orders@1 enabled=true deleted=false", "orders@2 enabled=true deleted=false"}, b.followed)

	found, err := b.Get(t.Context(), "orders")
	require.NoError(t, err)
	assert.Equal(t, changed.Stored, found, "what is read is what was said")
	assert.JSONEq(t, `{"name":"<f>","args":{"n":1.50,"a":"${body.a}"}}`, string(found.Target.Execution.Spec))
	assert.Contains(t, string(found.Target.Execution.Spec), "1.50", "as it was written")
	_, err = b.Get(t.Context(), "nobody")
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestADryRunStoresNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dry := ann()
	dry.DryRun = true
	would, err := b.Apply(t.Context(), define(t, orders), dry)
	require.NoError(t, err)
	assert.Equal(t, store.Created, would.Status)
	assert.Zero(t, b.version())
	assert.Zero(t, b.wakes)
	b.apply(orders)
	_, changed, err := b.SetEnabled(t.Context(), "orders", false, dry)
	require.NoError(t, err)
	assert.True(t, changed)
	_, err = b.Delete(t.Context(), "orders", dry)
	require.NoError(t, err)
	found, err := b.Get(t.Context(), "orders")
	require.NoError(t, err)
	assert.True(t, found.IsEnabled())
	assert.Equal(t, 1, b.wakes)
}

func TestASwitchOutlivesADefinitionThatDoesNotSpeakOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(orders)
	off, changed, err := b.SetEnabled(t.Context(), "orders", false, store.Change{By: "bob"})
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, int64(2), off.Revision)
	assert.Equal(t, "bob", off.UpdatedBy)
	_, changed, err = b.SetEnabled(t.Context(), "orders", false, store.Change{By: "bob"})
	require.NoError(t, err)
	assert.False(t, changed, "it was so before")
	assert.Equal(t, store.Unchanged, b.apply(orders).Status)
	assert.False(t, b.apply(`{"id": "orders", "kafka": {"topics": ["orders", "more"]}}`).IsEnabled())
	assert.True(t, b.apply(`{"id": "orders", "enabled": true, "kafka": {"topics": ["orders", "more"]}}`).IsEnabled())
	_, _, err = b.SetEnabled(t.Context(), "nobody", true, store.Change{})
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestTypeAndGroupAreForEver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(orders)
	fault := b.refused(`{"id": "orders", "webhook": {"auth": {"none": true}}}`)
	assert.Equal(t, "/type", fault.Pointer)
	assert.Equal(t, trigger.CodeImmutable, fault.Code)
	fault = b.refused(`{"id": "orders", "kafka": {"topics": ["orders"], "group": "another"}}`)
	assert.Equal(t, "/kafka/group", fault.Pointer)
	assert.Equal(t, trigger.CodeImmutable, fault.Code)
	assert.Contains(t, fault.Message, `"millrace-trigger-orders"`)
	assert.Equal(t, store.Updated, b.apply(`{"id": "orders", "kafka": {"topics": ["orders"], "group": "millrace-trigger-orders"}}`).Status, "its own may be said")
}

func TestADeletedTriggerIsAnotherOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.apply(orders)
	assert.Empty(t, codes(first.Warnings, trigger.CodeGroupReused))
	_, err := b.Delete(t.Context(), "orders", store.Change{By: "bob"})
	require.NoError(t, err)
	_, err = b.Delete(t.Context(), "orders", store.Change{By: "bob"})
	require.ErrorIs(t, err, store.ErrNotFound)
	assert.Equal(t, "orders@1 enabled=true deleted=true", b.followed[len(b.followed)-1])
	second := b.apply(orders)
	assert.NotEqual(t, first.UID, second.UID)
	assert.Equal(t, int64(1), second.Revision)
	assert.NotEmpty(t, codes(second.Warnings, trigger.CodeGroupReused), "its group has a position still")
	_, err = b.Delete(t.Context(), "orders", store.Change{})
	require.NoError(t, err)
	b.apply(`{"id": "orders", "webhook": {"auth": {"none": true}}}`)
}

func codes(faults []trigger.Fault, code string) (found []trigger.Fault) {
	for _, f := range faults {
		if f.Code == code {
			found = append(found, f)
		}
	}
	return found
}

func TestAGroupHasOneReader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(`{"id": "one", "kafka": {"topics": ["orders"], "group": "shared"}}`)
	fault := b.refused(`{"id": "two", "kafka": {"topics": ["orders"], "group": "shared", "brokers": ["theirs:1", "ours:9092"]}}`)
	assert.Equal(t, trigger.CodeConflict, fault.Code)
	assert.Contains(t, fault.Message, "trigger one")
	b.apply(`{"id": "two", "kafka": {"topics": ["orders"], "group": "shared", "brokers": ["theirs:1"]}}`)
	_, err := b.pool.Exec(t.Context(), `INSERT INTO consumers (name, consumer_group, topic, kind, inbox) VALUES ('worker', 'worker', 'execution_tasks', 'x', true)`)
	require.NoError(t, err)
	fault = b.refused(`{"id": "three", "kafka": {"topics": ["orders"], "group": "worker"}}`)
	assert.Contains(t, fault.Message, "a consumer of this installation")
	b.apply(`{"id": "three", "kafka": {"topics": ["orders"], "group": "worker", "brokers": ["theirs:1"]}}`)
}

func TestAWorkflowThatIsNotThereYetIsWarnedOf(t *testing.T) {
	t.Parallel()
	b := setup(t)
	asked := store.New(store.Config{Pool: b.pool, Defaults: trigger.Defaults{Brokers: []string{"ours:9092"}}, Workflows: func(_ context.Context, id string, version int) (bool, error) {
		return id == "known" && version < 3, nil
	}})
	for workflow, warned := range map[string]bool{`{"id": "known"}`: false, `{"id": "known", "version": 3}`: true, `{"id": "other"}`: true, `{"id": "${body.id}"}`: false} {
		applied, err := asked.Apply(t.Context(), define(t, `{"id": "a", "schedule": {"cron": "@daily"}, "target": {"workflow": `+workflow+`}}`), store.Change{DryRun: true})
		require.NoError(t, err)
		assert.Equal(t, warned, len(codes(applied.Warnings, trigger.CodeNoWorkflow)) == 1, workflow)
	}
}

func TestRevisionsGuardAgainstEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	expect := ann()
	expect.Revision = 1
	_, err := b.Apply(t.Context(), define(t, orders), expect)
	var conflict *store.ConflictError
	require.ErrorAs(t, err, &conflict)
	b.apply(orders)
	_, err = b.Apply(t.Context(), define(t, `{"id": "orders", "kafka": {"topics": ["a"]}}`), expect)
	require.NoError(t, err)
	for name, act := range map[string]func() error{
		"apply":  func() error { _, err := b.Apply(t.Context(), define(t, orders), expect); return err },
		"switch": func() error { _, _, err := b.SetEnabled(t.Context(), "orders", false, expect); return err },
		"delete": func() error { _, err := b.Delete(t.Context(), "orders", expect); return err },
	} {
		require.ErrorAs(t, act(), &conflict, name)
		assert.Equal(t, int64(2), conflict.Have)
	}
}

func TestAFollowerTakesAChangeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.refusal = errors.New("no")
	_, err := b.Apply(t.Context(), define(t, orders), ann())
	require.ErrorIs(t, err, b.refusal)
	assert.Zero(t, b.version())
	_, err = b.Get(t.Context(), "orders")
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestChangesAtTheSameTime holds that each has its revision, and that nothing is lost.
func TestChangesAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const writers = 8
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			_, err := b.Apply(t.Context(), define(t, fmt.Sprintf(`{"id": "orders", "description": "%d", "kafka": {"topics": ["a"]}}`, i)), ann())
			assert.NoError(t, err)
		})
	}
	group.Wait()
	found, err := b.Get(t.Context(), "orders")
	require.NoError(t, err)
	assert.Equal(t, int64(writers), found.Revision)
	assert.Equal(t, int64(writers), b.version())
}

func TestLists(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, text := range []string{`{"id": "b", "kafka": {"topics": ["a"]}}`, `{"id": "a", "webhook": {"auth": {"none": true}}}`, `{"id": "c", "tenant": "other", "enabled": false, "schedule": {"cron": "@daily"}}`} {
		b.apply(text)
	}
	ids := func(list []trigger.Stored, err error) (ids []string) {
		require.NoError(t, err)
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		return ids
	}
	all, err := b.All(t.Context())
	assert.Equal(t, []string{"a", "b", "c"}, ids(all, err))
	assert.Equal(t, []string{"a", "b"}, ids(b.List(t.Context(), store.Query{Limit: 2})))
	assert.Equal(t, []string{"c"}, ids(b.List(t.Context(), store.Query{Limit: 2, After: "b"})))
	assert.Equal(t, []string{"a"}, ids(b.List(t.Context(), store.Query{Limit: 9, Type: trigger.TypeWebhook})))
	assert.Equal(t, []string{"c"}, ids(b.List(t.Context(), store.Query{Limit: 9, Tenant: "other"})))
	assert.Equal(t, []string{"c"}, ids(b.List(t.Context(), store.Query{Limit: 9, Enabled: new(false)})))
	assert.Equal(t, []string{"a", "c"}, ids(b.ByUID(t.Context(), []string{all[2].UID, all[0].UID, "none", "0197f000-0000-7000-8000-000000000000"})))
	found, err := b.Find(t.Context(), "b")
	require.NoError(t, err)
	assert.Equal(t, 10, found.Kafka.PrefetchCount)
	found, err = b.Find(t.Context(), "nobody")
	require.NoError(t, err)
	assert.Nil(t, found)
}

func TestASnapshotFollows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := store.NewSnapshot(b.Store, slog.New(slog.DiscardHandler))
	_, ready := s.Lookup("orders")
	assert.False(t, ready)
	b.apply(orders)
	require.NoError(t, s.Refresh(t.Context()))
	first, ready := s.Lookup("orders")
	require.True(t, ready)
	require.NotNil(t, first)
	b.apply(`{"id": "more", "kafka": {"topics": ["a"]}}`)
	require.NoError(t, s.Refresh(t.Context()))
	again, _ := s.Lookup("orders")
	assert.Same(t, first, again, "what has not changed is not compiled again")
	// As a later version might have left it.
	_, err := b.pool.Exec(t.Context(), `UPDATE triggers SET document = '{"id":"more","type":"kafka","target":{}}', revision = 2 WHERE id = 'more'`)
	require.NoError(t, err)
	_, err = b.Delete(t.Context(), "orders", store.Change{})
	require.NoError(t, err)
	require.NoError(t, s.Refresh(t.Context()))
	for _, id := range []string{"orders", "more"} {
		gone, ready := s.Lookup(id)
		assert.True(t, ready)
		assert.Nil(t, gone, id)
	}
	_, _, err = b.SetEnabled(t.Context(), "more", false, store.Change{})
	require.NoError(t, err, "what no longer compiles can be switched off")
	_, _, err = b.SetEnabled(t.Context(), "more", true, store.Change{})
	var faults *trigger.FaultsError
	require.ErrorAs(t, err, &faults)
}
