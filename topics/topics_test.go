package topics

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	t.Parallel()
	seen := make(map[Topic]bool)
	for _, s := range Table() {
		assert.False(t, seen[s.Topic], "%s stands in the table once", s.Topic)
		seen[s.Topic] = true
		assert.Positive(t, s.Partitions)
		assert.GreaterOrEqual(t, s.Retention, Day)
		assert.NotEmpty(t, s.Key)
		assert.NotEmpty(t, s.Purpose)
		got, ok := SpecOf(s.Topic)
		assert.True(t, ok)
		assert.Equal(t, s, got)
	}
	_, ok := SpecOf("orders")
	assert.False(t, ok)

	Table()[0].Partitions = 99
	assert.EqualValues(t, 12, Table()[0].Partitions, "the table belongs to each caller")
}

func TestNaming(t *testing.T) {
	t.Parallel()
	n := Naming{ExecutionEvents: "prod.execution-events", ExecutionTasks: ""}
	assert.Equal(t, "prod.execution-events", n.Physical(ExecutionEvents))
	assert.Equal(t, "execution_tasks", n.Physical(ExecutionTasks), "an empty name is no name")
	assert.Equal(t, "orders", n.Physical("orders"))
	assert.Equal(t, ExecutionEvents, n.Logical("prod.execution-events"))
	assert.Equal(t, Topic("orders"), n.Logical("orders"))
	assert.Equal(t, "dead_letters", Naming(nil).Physical(DeadLetters))
	assert.Equal(t, DeadLetters, Naming(nil).Logical("dead_letters"))
	for _, s := range Table() {
		assert.Equal(t, s.Topic, n.Logical(n.Physical(s.Topic)))
	}
}

func TestNamingValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, Naming(nil).Validate())
	require.NoError(t, Naming{ExecutionEvents: "a.B-c_9", "orders": strings.Repeat("x", 249)}.Validate())

	err := Naming{ExecutionEvents: "events/1", ExecutionTasks: ".."}.Validate()
	require.ErrorContains(t, err, `"events/1"`)
	require.ErrorContains(t, err, `".."`, "every fault at once")

	require.ErrorContains(t, Naming{ExecutionEvents: "e", ExecutionTasks: "e"}.Validate(), "both are named")
	require.ErrorContains(t, Naming{ExecutionEvents: "dead_letters"}.Validate(), "both are named",
		"a name may also clash with a topic that is not mapped")
	require.Error(t, Naming{"orders": strings.Repeat("x", 250)}.Validate())
}

func TestTypes(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, typ := range Types() {
		assert.False(t, seen[typ.Name], "%s is registered once", typ.Name)
		seen[typ.Name] = true
		assert.Regexp(t, `^(millrace\.[a-z]+\.[a-z_]+|io\.serverlessworkflow\.(workflow|task)\.[a-z-]+)\.v[1-9]$`, typ.Name)
		assert.Equal(t, typ.Topic == FlowLifecycle, IsLifecycle(typ.Name))
		assert.Equal(t, typ.Name, typ.New().EventType())
		assert.Equal(t, exampleExecutionID, typ.Example.EventKey())
		assert.Equal(t, "urn:millrace:schema:"+typ.Name, typ.DataSchema)
		_, ok := SpecOf(typ.Topic)
		assert.True(t, ok, "%s lies in a topic of the table", typ.Name)
		got, ok := Lookup(typ.Name)
		assert.True(t, ok)
		assert.Equal(t, typ.Name, got.Name)
		if typ.Topic == ExecutionTasks {
			assert.Equal(t, "millrace.execution.task.v1", typ.Name, "the only type on a task topic")
		}
	}
	_, ok := Lookup("millrace.execution.requested.v2")
	assert.False(t, ok)
}

// Every state of an execution is reached by an event, and facts reach none.
func TestStates(t *testing.T) {
	t.Parallel()
	states := make(map[string][]string)
	for _, typ := range Types() {
		if !strings.HasPrefix(typ.Name, "millrace.execution.") {
			assert.Empty(t, typ.State, "%s tells of no state of an execution", typ.Name)
			continue
		}
		short := strings.TrimSuffix(strings.TrimPrefix(typ.Name, "millrace.execution."), ".v1")
		states[typ.State] = append(states[typ.State], short)
	}
	assert.Equal(t, map[string][]string{
		"":            {"reprioritized", "task", "output", "cancel_requested", "lease_expired"},
		"REQUESTED":   {"requested"},
		"QUEUED":      {"queued", "requeued"},
		"REJECTED":    {"rejected"},
		"SCHEDULED":   {"scheduled"},
		"RUNNING":     {"started"},
		"COMPLETED":   {"completed"},
		"FAILED":      {"failed"},
		"TIMED_OUT":   {"timed_out"},
		"CANCELLED":   {"cancelled"},
		"QUARANTINED": {"quarantined"},
	}, states)
}

func TestDuration(t *testing.T) {
	t.Parallel()
	type limits struct {
		Run Duration `json:"run,omitzero"`
	}
	for _, d := range []time.Duration{1, 1500, 250 * time.Millisecond, time.Second, 90 * time.Second, 36*time.Hour + time.Millisecond} {
		data, err := json.Marshal(limits{Duration(d)})
		require.NoError(t, err)
		var back limits
		require.NoError(t, json.Unmarshal(data, &back))
		assert.Equal(t, d, back.Run.Std())
	}
	data, err := json.Marshal(limits{})
	require.NoError(t, err)
	assert.Equal(t, `{}`, string(data), "zero is left out")

	_, err = json.Marshal(limits{-1})
	require.Error(t, err, "a negative duration has no meaning")
	for _, bad := range []string{`"-1s"`, `"soon"`, `""`, `5`, `"9999999h"`} {
		require.Error(t, json.Unmarshal([]byte(`{"run":`+bad+`}`), new(limits)), bad)
	}
	err = new(Duration).UnmarshalText([]byte("hunter2"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
}

func TestTaskTopics(t *testing.T) {
	t.Parallel()
	for _, name := range []Topic{ExecutionTasks, "execution_tasks_gpu", "execution_tasks_long_running_2"} {
		assert.True(t, IsTaskTopic(name), name)
	}
	for _, name := range []Topic{"", ExecutionEvents, "execution_tasks_", "execution_tasks_GPU", "execution_tasks_a-b", "execution_task", "tasks", ExecutionTasks + "gpu", Topic("execution_tasks_" + strings.Repeat("x", 65))} {
		assert.False(t, IsTaskTopic(name), name)
	}
	spec := TaskTopic("execution_tasks_gpu")
	assert.Equal(t, Topic("execution_tasks_gpu"), spec.Topic)
	assert.EqualValues(t, 6, spec.Partitions)
	assert.Equal(t, 3*Day, spec.Retention)
}
