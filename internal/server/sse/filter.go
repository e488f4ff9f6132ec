package sse

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/lifecycle"
	"github.com/millrace/millrace/topics"
)

// Filter selects events of a topic: those that meet every field. A field that is
// empty selects nothing away.
type Filter struct {
	// Tenant is whose events are seen; those that do not say whose they are, are not.
	Tenant string
	// Subjects are what events are about, executions or workflow instances: any of
	// them.
	Subjects []string
	// Users are whose events: any of them. Events that do not say it are left out.
	Users []string
	// Types are CloudEvents types, any of them; one that ends with "*" stands for all
	// that begin with what is before it.
	Types []string
}

func (f Filter) match(it *item) bool {
	if len(f.Subjects) > 0 && !slices.Contains(f.Subjects, it.subject()) {
		return false
	}
	if len(f.Types) > 0 && !slices.ContainsFunc(f.Types, func(t string) bool { return matchType(t, it.envelope.Type) }) {
		return false
	}
	if f.Tenant == "" && len(f.Users) == 0 {
		return true
	}
	tenant, user := it.envelope.Owner()
	return (f.Tenant == "" || f.Tenant == tenant) && (len(f.Users) == 0 || user != "" && slices.Contains(f.Users, user))
}

func matchType(wanted, is string) bool {
	if prefix, ok := strings.CutSuffix(wanted, "*"); ok {
		return strings.HasPrefix(is, prefix)
	}
	return wanted == is
}

// subjectOf returns what an event is about: its subject, or for lifecycle events of
// other engines, which have none, the workflow instance that their data names.
func subjectOf(e *topics.Envelope) string {
	if e.Subject != "" || !topics.IsLifecycle(e.Type) {
		return e.Subject
	}
	told, _, err := lifecycle.Read(*e)
	if err != nil {
		return ""
	}
	return told.InstanceID
}
