package definitions_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/definitions"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/testenv"
	"github.com/millrace/millrace/internal/workflow"
)

func TestMain(m *testing.M) { testenv.Run(m) }

// bench is a database, and processes that use it.
type bench struct {
	*definitions.Store
	t    *testing.T
	pool *pgxpool.Pool
	now  time.Time
}

func setup(t *testing.T) *bench {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t, postgres.MigrateDSN))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bench{t: t, pool: pool, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.Store = b.process(nil)
	return b
}

// process is another process on the same database.
func (b *bench) process(signals definitions.Signals) *definitions.Store {
	return definitions.New(definitions.Config{Pool: b.pool, Signals: signals, Plans: 2, Now: func() time.Time { return b.now }})
}

// workflowText is a definition that says something.
func workflowText(id, says string) []byte {
	return fmt.Appendf(nil, `{
  "id": %q,
  "name": "Says %s",
  "description": "what it says",
  "steps": [
    {"id": "say", "name": %q, "type": "SERVICE_TASK", "nextStep": "end"},
    {"id": "end", "name": "End", "type": "END"}
  ]
}`, id, says, says)
}

func (b *bench) put(text []byte) (definitions.Summary, bool) {
	b.t.Helper()
	out, created, err := b.Put(b.t.Context(), text, definitions.Workflow, "ada")
	require.NoError(b.t, err)
	return out, created
}

func TestPutMakesVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, created := b.put(workflowText("GREET::hello", "hello"))
	assert.True(t, created)
	assert.Equal(t, 1, first.Version)
	assert.Equal(t, []string{"GREET::hello", "workflow", "Says hello", "what it says", "ada"}, []string{first.ID, first.Kind, first.Name, first.Description, first.UploadedBy})
	assert.WithinDuration(t, time.Now(), first.UploadedAt, time.Hour)

	for name, same := range map[string]string{
		"the same":               string(workflowText("GREET::hello", "hello")),
		"with other space":       strings.ReplaceAll(string(workflowText("GREET::hello", "hello")), "\n", "\t \r\n"),
		"with a version":         strings.Replace(string(workflowText("GREET::hello", "hello")), `"name"`, `"version": 7, "name"`, 1),
		"with a byte order mark": "\ufeff" + string(workflowText("GREET::hello", "hello")),
	} {
		again, created, err := b.Put(t.Context(), []byte(same), definitions.Workflow, "bob")
		require.NoError(t, err, name)
		assert.False(t, created, name)
		assert.Equal(t, first, again, name)
	}

	second, created := b.put(workflowText("GREET::hello", "good day"))
	assert.True(t, created)
	assert.Equal(t, 2, second.Version)
	third, created := b.put(workflowText("GREET::hello", "hello"))
	assert.True(t, created, "what counts is the latest")
	assert.Equal(t, 3, third.Version)
	_, created, err := b.Put(t.Context(), workflowText("GREET::hello", "hello"), definitions.Saga, "ada")
	require.NoError(t, err)
	assert.True(t, created, "a saga is another thing")
}

func TestFaultsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.Put(t.Context(), []byte("{\n\"id\": \"a b\"\n}"), definitions.Workflow, "ada")
	var faults *workflow.FaultsError
	require.ErrorAs(t, err, &faults)
	assert.Equal(t, 2, faults.Faults[2].Line)
	page, err := b.List(t.Context(), "", 0, 0)
	require.NoError(t, err)
	assert.Zero(t, page.Total)
}

func TestConcurrentPutsGetEachAVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const different, times = 8, 3
	var mu sync.Mutex
	versions := map[string][]int{}
	made := 0
	var wg sync.WaitGroup
	for i := range different {
		for range times {
			wg.Go(func() {
				says := fmt.Sprint("says ", i)
				out, created, err := b.Put(context.Background(), workflowText("a", says), definitions.Workflow, "ada")
				mu.Lock()
				defer mu.Unlock()
				assert.NoError(t, err)
				versions[says] = append(versions[says], out.Version)
				if created {
					made++
				}
			})
		}
	}
	wg.Wait()
	page, err := b.Versions(t.Context(), "a", 0, definitions.MaxPage)
	require.NoError(t, err)
	assert.Equal(t, made, page.Total)
	assert.GreaterOrEqual(t, made, different)
	for i, v := range page.Items {
		assert.Equal(t, page.Total-i, v.Version, "there are no gaps")
	}
	for says, got := range versions {
		for _, version := range got {
			stored, err := b.Get(t.Context(), "a", version)
			require.NoError(t, err)
			assert.Contains(t, string(stored.Text), says, "everybody was told where its own text is")
		}
	}
}

func TestGetAndList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Get(t.Context(), "a", 0)
	require.ErrorIs(t, err, definitions.ErrNotFound)
	require.EqualError(t, err, `definition "a": definition not found`)
	b.put(workflowText("LOS::loan", "old words"))
	b.put(workflowText("LOS::loan", "new"))
	b.put(workflowText("hr_on-boarding", "100% welcome"))

	stored, err := b.Get(t.Context(), "LOS::loan", 0)
	require.NoError(t, err)
	assert.Equal(t, 2, stored.Version)
	assert.Equal(t, string(workflowText("LOS::loan", "new")), string(stored.Text), "the text is what was put")
	stored, err = b.Get(t.Context(), "LOS::loan", 1)
	require.NoError(t, err)
	assert.Equal(t, "Says old words", stored.Name)
	_, err = b.Get(t.Context(), "LOS::loan", 3)
	require.EqualError(t, err, `version 3 of definition "LOS::loan": definition not found`)

	for keyword, want := range map[string][]string{
		"": {"LOS::loan", "hr_on-boarding"}, "los::": {"LOS::loan"}, "WELCOME": {"hr_on-boarding"}, "%": {"hr_on-boarding"}, "_": {"hr_on-boarding"}, "old words": {}, "says": {"LOS::loan", "hr_on-boarding"},
	} {
		page, err := b.List(t.Context(), keyword, 0, 0)
		require.NoError(t, err)
		got := []string{}
		for _, item := range page.Items {
			got = append(got, item.ID)
		}
		assert.Equal(t, want, got, keyword)
		assert.Equal(t, len(want), page.Total, keyword)
	}
	page, err := b.List(t.Context(), "", 1, 1)
	require.NoError(t, err)
	assert.Equal(t, 2, page.Total)
	require.Len(t, page.Items, 1)
	assert.Equal(t, "hr_on-boarding", page.Items[0].ID)
	page, err = b.List(t.Context(), "", 9, 1)
	require.NoError(t, err)
	assert.Equal(t, 2, page.Total, "a page beyond the end has the number too")
	assert.Empty(t, page.Items)

	page, err = b.Versions(t.Context(), "LOS::loan", 0, 0)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 1}, []int{page.Items[0].Version, page.Items[1].Version})
	_, err = b.Versions(t.Context(), "nobody", 0, 0)
	require.ErrorIs(t, err, definitions.ErrNotFound)
}

func TestWhatIsStartedMayComeLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text := []byte(`{
  "id": "first", "name": "First", "autoStartNextWorkflow": true,
  "nextWorkflowId": "second",
  "steps": [
    {"id": "child", "name": "Child", "type": "SUBWORKFLOW", "workflowId": "third", "workflowVersion": 2, "nextStep": "again"},
    {"id": "again", "name": "Again", "type": "SUBWORKFLOW", "workflowId": "first", "nextStep": "end"},
    {"id": "end", "name": "End", "type": "END"}
  ]
}`)
	warnings := func() []string {
		faults, err := b.Check(t.Context(), text)
		require.NoError(t, err)
		var out []string
		for _, f := range faults {
			assert.True(t, f.Warning)
			out = append(out, f.String())
		}
		return out
	}
	const self = "6:75: warning: the workflow starts itself: let something end that [endless_chain]"
	assert.Equal(t, []string{
		`3:21: warning: there is no definition "second" yet [unknown_definition]; upload it before an instance comes to it`,
		`5:75: warning: there is no version 2 of definition "third" yet [unknown_definition]; upload it before an instance comes to it`,
		self,
	}, warnings())
	b.put(workflowText("second", "x"))
	b.put(workflowText("third", "x"))
	assert.Len(t, warnings(), 2)
	b.put(workflowText("third", "y"))
	assert.Equal(t, []string{self}, warnings())

	faults, err := b.Check(t.Context(), []byte("{"))
	require.NoError(t, err)
	assert.Error(t, workflow.Refused(faults))
}

func TestPlansAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.Plan(t.Context(), "a", 0)
	require.ErrorIs(t, err, definitions.ErrNotFound)
	b.put(workflowText("a", "one"))
	plan, version, err := b.Plan(t.Context(), "a", 0)
	require.NoError(t, err)
	assert.Equal(t, 1, version)
	assert.Equal(t, 1, plan.Definition().Version)
	again, _, err := b.Plan(t.Context(), "a", 1)
	require.NoError(t, err)
	assert.Same(t, plan, again)

	b.put(workflowText("a", "two"))
	_, version, err = b.Plan(t.Context(), "a", 0)
	require.NoError(t, err)
	assert.Equal(t, 2, version, "who put it knows at once")
	old, _, err := b.Plan(t.Context(), "a", 1)
	require.NoError(t, err)
	assert.Same(t, plan, old)
	_, _, err = b.Plan(t.Context(), "a", 3)
	require.ErrorIs(t, err, definitions.ErrNotFound)

	// Room is for two: the one that was not used for longest goes.
	b.put(workflowText("b", "one"))
	_, _, err = b.Plan(t.Context(), "b", 0)
	require.NoError(t, err)
	kept, _, err := b.Plan(t.Context(), "a", 1)
	require.NoError(t, err)
	assert.Same(t, plan, kept)
	_, err = b.pool.Exec(t.Context(), `DELETE FROM wf_definitions`)
	require.NoError(t, err)
	_, _, err = b.Plan(t.Context(), "a", 1)
	require.NoError(t, err, "it is still in memory")
	_, _, err = b.Plan(t.Context(), "a", 2)
	require.ErrorIs(t, err, definitions.ErrNotFound)
}

// hub joins processes as postgres.Signals would, at once.
type hub struct {
	mu    sync.Mutex
	wakes []chan struct{}
	ready chan struct{}
}

func (h *hub) Wake(string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.wakes {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (h *hub) Subscribe(string) (<-chan struct{}, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{}, 1)
	h.wakes = append(h.wakes, c)
	close(h.ready)
	return c, func() {}
}

func TestOtherProcessesHearOfNewVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	signals := &hub{ready: make(chan struct{})}
	here, there := b.process(signals), b.process(signals)
	version := func(s *definitions.Store) int {
		_, version, err := s.Plan(t.Context(), "a", 0)
		require.NoError(t, err)
		return version
	}
	put := func(says string) {
		_, _, err := here.Put(t.Context(), workflowText("a", says), definitions.Workflow, "ada")
		require.NoError(t, err)
	}
	put("one")
	require.Equal(t, 1, version(there))
	put("two")
	assert.Equal(t, 1, version(there), "which nobody told it")
	b.now = b.now.Add(definitions.Freshness)
	assert.Equal(t, 2, version(there))

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- there.Run(ctx) }()
	<-signals.ready
	put("three")
	require.Eventually(t, func() bool { return version(there) == 3 }, 30*time.Second, time.Millisecond, "its clock stands still: it was told")
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, b.Run(ctx), "without signals there is nothing to run")
	assert.Equal(t, 3, version(here))
}
