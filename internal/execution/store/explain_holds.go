package store

import (
	"strings"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/holds"
	"github.com/millrace/millrace/topics"
)

// covering returns those of the holds that cover an execution with this request.
func covering(list []holds.Hold, r topics.Request) []execution.Hold {
	var covering []execution.Hold
	for _, h := range list {
		if h.Covers(r.ResourceClass, r.Tenant, r.User) {
			covering = append(covering, execution.Hold{
				What: h.String(), Resume: resumeCommand(h.Target), By: h.By, Reason: h.Reason, Since: h.Since,
			})
		}
	}
	return covering
}

// resumeCommand is what somebody types to lift the hold.
func resumeCommand(t holds.Target) string {
	const command = "millrace queue resume"
	switch t.Scope {
	case holds.Class:
		return command + " --class " + shellWord(t.ResourceClass)
	case holds.User:
		if t.Tenant == execution.DefaultTenant {
			return command + " --user " + shellWord(t.User)
		}
		return command + " --user " + shellWord(t.User) + " --tenant " + shellWord(t.Tenant)
	default:
		return command + " --all"
	}
}

// shellWord quotes a name where a shell would read it as more than one word.
func shellWord(name string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.@:/+", r)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return name
}
