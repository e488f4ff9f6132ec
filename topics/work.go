package topics

import "strings"

// CarriesWork says whether records of t ask for something to be done rather than tell
// what was: tasks, jobs, commands, firings that are due. To repeat such a record is to
// ask for the work again.
func CarriesWork(t Topic) bool {
	return IsTaskTopic(t) || t == SagaCommands || t == ScheduleTasks || strings.HasPrefix(string(t), "workflow.jobs.")
}
