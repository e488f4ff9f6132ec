package configs_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/topics"
)

func TestRowsAreAddedByWhoeverNamesThem(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
topics:
  execution_tasks_gpu: {partitions: 2, retention: 1d}
  execution_tasks_plain:
coordinator:
  classes:
    gpu: {topic: execution_tasks_gpu}
    Big-One: {topic: execution_tasks_plain}
worker: {resource_classes: [default, gpu, Big-One]}
`)
	config, origins, err := configs.Sources{
		File:    file,
		Environ: env(t, "MILLRACE_TOPICS_EXECUTION_TASKS_SLOW_JOBS_PARTITIONS=3", "MILLRACE_COORDINATOR_CLASSES_SLOW_TOPIC=execution_tasks_slow_jobs"),
		Overrides: []configs.Override{
			{Path: "topics.execution_tasks_gpu.name", Value: "prod.gpu", Origin: "--set"},
			{Path: "topics.execution_tasks_set.partitions", Value: "1", Origin: "--set"},
		},
	}.LoadWithOrigins()
	require.NoError(t, err)

	assert.Equal(t, configs.TopicTable{Name: "prod.gpu", Partitions: 2, Retention: topics.Day}, config.Topics["execution_tasks_gpu"])
	assert.Equal(t, configs.TopicTable{Name: "execution_tasks_plain", Partitions: 6, Retention: 3 * topics.Day}, config.Topics["execution_tasks_plain"],
		"what nobody says is as for execution_tasks")
	assert.EqualValues(t, 3, config.Topics["execution_tasks_slow_jobs"].Partitions)
	assert.Equal(t, file+":3", origins["topics.execution_tasks_gpu.partitions"])
	assert.Equal(t, "prod.gpu", config.TopicNaming().Physical("execution_tasks_gpu"))

	var created []topics.Topic
	for _, spec := range config.TopicSpecs() {
		created = append(created, spec.Topic)
	}
	assert.Equal(t, []topics.Topic{
		topics.ExecutionEvents, topics.ExecutionTasks, topics.SagaCommands, topics.SagaEvents, topics.ScheduleEvents, topics.ScheduleTasks, topics.FlowLifecycle,
		topics.DeadLetters, topics.DataIndexDeadLetters,
		"execution_tasks_gpu", "execution_tasks_plain", "execution_tasks_set", "execution_tasks_slow_jobs",
	}, created)

	assert.Equal(t, topics.ExecutionTasks, config.TaskTopic("default"))
	assert.Equal(t, topics.Topic("execution_tasks_slow_jobs"), config.TaskTopic("slow"))
	assert.Equal(t, []topics.Topic{topics.ExecutionTasks, "execution_tasks_gpu", "execution_tasks_plain"}, config.WorkerTopics())
	config.Worker.Topics = []topics.Topic{"execution_tasks_set"}
	assert.Equal(t, []topics.Topic{"execution_tasks_set"}, config.WorkerTopics(), "a stage stands between")

	assert.Len(t, configs.Default().Topics, len(topics.Table()), "the defaults stay what they are")
	assert.Empty(t, configs.Default().Coordinator.Classes)
}

func TestRowsArePrintedAndReadAgain(t *testing.T) {
	t.Parallel()
	first, err := configs.Sources{Environ: env(t), Overrides: []configs.Override{
		{Path: "topics.execution_tasks_gpu.retention", Value: "36h"},
		{Path: "coordinator.classes.gpu.topic", Value: "execution_tasks_gpu"},
	}}.Load()
	require.NoError(t, err)
	var printed bytes.Buffer
	require.NoError(t, first.WriteYAML(&printed, nil))
	again, err := configs.Sources{Environ: env(t), File: write(t, "again.yaml", printed.String())}.Load()
	require.NoError(t, err)
	assert.Equal(t, first.Topics, again.Topics)
	assert.Equal(t, first.Coordinator.Classes, again.Coordinator.Classes)
	assert.Equal(t, 36*time.Hour, again.Topics["execution_tasks_gpu"].Retention)
}

func TestTopicsWithDashesHaveVariables(t *testing.T) {
	t.Parallel()
	config, err := configs.Sources{Environ: env(t, "MILLRACE_TOPICS_FLOW_LIFECYCLE_OUT_NAME=prod.flow", "MILLRACE_TOPICS_DATA_INDEX_EVENTS_DLQ_PARTITIONS=1")}.Load()
	require.NoError(t, err)
	assert.Equal(t, "prod.flow", config.TopicNaming().Physical(topics.FlowLifecycle))
	assert.EqualValues(t, 1, config.Topics[topics.DataIndexDeadLetters].Partitions)
}

func TestRoutesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", `
topics:
  execution_task_gpu: {partitions: 2}
  execution_tasks_GPU: {partitions: 2}
  execution_tasks_zero: {partitions: 0}
  execution_tasks_twin: {name: execution_tasks}
coordinator:
  classes:
    gpu: {topic: execution_tasks_gpu}
    events: {topic: execution_events}
    "no class": {topic: execution_tasks}
    odd: {slotz: 3}
worker: {topics: [execution_tasks_gpu, execution_tasks, execution_tasks]}
`)
	_, err := configs.Sources{File: file, Environ: env(t)}.Load()
	assert.ElementsMatch(t, []string{
		"millrace.yaml:3: topics.execution_task_gpu: is not a setting",
		"millrace.yaml:4: topics.execution_tasks_GPU: is not a setting",
		"millrace.yaml:5: topics.execution_tasks_zero.partitions: must be between 1 and 10000, not 0",
		`topics: topics execution_tasks and execution_tasks_twin: both are named "execution_tasks"`,
		"millrace.yaml:9: coordinator.classes.gpu.topic: the topic execution_tasks_gpu is not declared: add topics.execution_tasks_gpu",
		`millrace.yaml:10: coordinator.classes.events.topic: "execution_events" is not a task topic: want execution_tasks, or execution_tasks_ and lower-case letters, digits and '_'`,
		"millrace.yaml:11: coordinator.classes.no class: is not a setting",
		"millrace.yaml:12: coordinator.classes.odd.slotz: is not a setting",
		"millrace.yaml:13: worker.topics: the topic execution_tasks_gpu is not declared: add topics.execution_tasks_gpu",
		"millrace.yaml:13: worker.topics: names execution_tasks twice",
	}, withoutSuggestions(faults(t, err), file))
}

// withoutSuggestions shortens faults to what is wrong.
func withoutSuggestions(lines []string, file string) []string {
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "; did you mean")
		lines[i] = strings.ReplaceAll(line, file, "millrace.yaml")
	}
	return lines
}
