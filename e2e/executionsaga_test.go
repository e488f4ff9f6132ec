package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/millrace/internal/client"
)

// workshop is an orchestrator and a program with the execution saga, whose workloads are real
// processes in a yard.
type workshop struct {
	in           *installation
	orchestrator *process
	program      *process
	kafka        *kgo.Client
	yard         string
}

func newWorkshop(t *testing.T) *workshop {
	in := installEmbedded(t)
	kafka, err := kgo.NewClient(kgo.SeedBrokers(in.brokers...))
	require.NoError(t, err)
	t.Cleanup(kafka.Close)
	w := &workshop{in: in, kafka: kafka, yard: filepath.Join(in.dir, "yard")}
	t.Cleanup(w.sweep)
	w.orchestrator = in.serve("orchestrator", workflowRoles).ready()
	w.program = in.sagas("program")
	return w
}

// sweep ends what a test that failed has left running.
func (w *workshop) sweep() {
	pids, _ := filepath.Glob(filepath.Join(w.yard, "*", "pid"))
	for _, file := range pids {
		if text, err := os.ReadFile(file); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 1 {
				_ = syscall.Kill(-pid, syscall.SIGKILL)
			}
		}
	}
}

// begin starts a saga, and returns its id.
func (w *workshop) begin(saga string, t task) string {
	w.in.t.Helper()
	spec, err := json.Marshal(t)
	require.NoError(w.in.t, err)
	id := uuid.NewString()
	_, err = w.orchestrator.client().StartSaga(w.in.t.Context(), client.NewSaga{
		Name: saga, ID: id, State: append(append([]byte(`{"spec":`), spec...), '}'),
	})
	require.NoError(w.in.t, err)
	return id
}

// diesOrRests waits until the program has killed itself, or the saga is over.
func (w *workshop) diesOrRests(id string) (died bool) {
	t := w.in.t
	t.Helper()
	await(t, stuckAfter, "the program dies, or the saga is over", func() bool {
		return !w.program.running() || w.in.count(`SELECT count(*) FROM wf_instances WHERE id = $1::uuid AND ended_at IS NOT NULL`, id) == 1
	})
	return !w.program.running()
}

// restart starts the program again once it is dead. Its memberships end, as with time.
func (w *workshop) restart() {
	evict(w.in.t, w.kafka, func(group string) bool {
		return strings.Contains(group, workloadSaga) || strings.Contains(group, tripName)
	})
	w.program = w.in.sagas("program")
}

// state is what a saga has kept, and done is what was done in the yard.
func (w *workshop) state(id string) (state struct {
	Workload string `json:"workload"`
	Result   *struct {
		ExitCode int `json:"exit_code"`
	} `json:"result"`
}) {
	w.in.t.Helper()
	var text []byte
	require.NoError(w.in.t, w.in.db.QueryRow(w.in.t.Context(), `SELECT variables FROM wf_instances WHERE id = $1::uuid`, id).Scan(&text))
	require.NoError(w.in.t, json.Unmarshal(text, &state))
	return state
}

func (w *workshop) done(workload string) []string {
	w.in.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.yard, workload+".log"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(w.in.t, err)
	return strings.Fields(string(text))
}

// forever is a workload that never ends by itself (nor outlives a test for long).
const forever = `i=0; while [ $i -lt 600 ]; do i=$((i+1)); sleep 1; done`

// The execution saga runs a workload once, whatever dies, and leaves nothing of it.
func TestExecutionSaga(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)

	// Its program dies before the workload is created, when the answer is on its way, and
	// when it is deleted and nobody knows.
	id := w.begin(workloadSaga, task{Run: "exit 3", Crash: []string{"creating", "created", "deleted"}})
	deaths := 0
	for w.diesOrRests(id) {
		deaths++
		w.restart()
	}
	assert.Equal(t, 3, deaths)
	require.Equal(t, "COMPLETED", w.in.sagaRests(id))
	state := w.state(id)
	require.NotNil(t, state.Result)
	assert.Equal(t, 3, state.Result.ExitCode, "a program that ends badly is a result")
	assert.Equal(t, []string{"started", "deleted"}, w.done(state.Workload))

	// The workload is there, the answer is lost, and nobody hears of it in time.
	id = w.begin(briefSaga, task{Run: forever, Crash: []string{"created"}})
	for n := 0; !w.diesOrRests(id); n++ { // the machine was too slow to create it in time
		require.Less(t, n, 5)
		id = w.begin(briefSaga, task{Run: forever, Crash: []string{"created"}})
	}
	await(t, stuckAfter, "the saga gives up", func() bool {
		return w.in.count(`SELECT count(*) FROM wf_instances WHERE id = $1::uuid AND status = 'COMPENSATING'`, id) == 1
	})
	assert.Equal(t, []string{"started"}, w.done(w.state(id).Workload))
	w.restart()
	require.Equal(t, "COMPENSATED", w.in.sagaRests(id))
	assert.Equal(t, []string{"started", "deleted"}, w.done(w.state(id).Workload))

	// It takes too long and is deleted, by a program that dies over it.
	id = w.begin(briefSaga, task{Run: forever, Crash: []string{"deleted"}})
	for w.diesOrRests(id) {
		w.restart()
	}
	require.Equal(t, "COMPENSATED", w.in.sagaRests(id))
	// On a machine that is too slow to create it in time, nothing is left either.
	assert.Contains(t, [][]string{{"started", "deleted"}, nil}, w.done(w.state(id).Workload))
	w.in.stopAll()
}
