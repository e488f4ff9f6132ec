package engine

import (
	"slices"

	"github.com/millrace/millrace/internal/workflow"
)

// kept are the entries of an input that are stored: all, or without an audit log those
// that the history and people's doings are read off. What is told as a saga is read off
// all of them.
func (u *unit) kept(l *live, entries []workflow.Entry) []workflow.Entry {
	if !u.engine.config.NoAudit || tellsSaga(l.kind, l.plan.Definition()) {
		return entries
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e workflow.Entry) bool { return auditOnly(e.Kind) })
}

// auditOnly says whether nothing but an audit log needs an entry.
func auditOnly(k workflow.EntryKind) bool {
	switch k {
	case workflow.JobCompleted, workflow.JobFailed, workflow.JobRetried, workflow.JobCancelled, workflow.TimerWasFired,
		workflow.SignalReceived, workflow.SignalKept, workflow.UserTaskDone, workflow.UserTaskCancelled,
		workflow.VariablesSet, workflow.InputDeferred, workflow.InstanceWaiting:
		return true
	default:
		return false
	}
}
