package configs

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/trigger"
)

// Triggers configures what users bind to topics, webhooks and schedules.
type Triggers struct {
	AlertAfter time.Duration  `key:"alert_after" doc:"How long a trigger may stand before it is an alert, where it does not say so itself."`
	Secrets    TriggerSecrets `key:"secrets" doc:"What the definitions of triggers may refer to: whoever may apply a trigger can use it."`
}

// TriggerSecrets configures which secrets triggers may use.
type TriggerSecrets struct {
	EnvPrefix string `key:"env_prefix" unset:"no variable may be named" doc:"What the names of environment variables begin with that triggers may refer to. Never a prefix of the servers' own settings."`
	Dir       string `key:"dir" unset:"no file may be named" doc:"The folder below which the files lie that triggers may refer to. Links that lead out of it are refused."`
}

// TriggerEnvPrefix is the default of triggers.secrets.env_prefix. Variables of that name are
// none of the settings.
const TriggerEnvPrefix = "MILLRACE_TRIGGER_"

func defaultTriggers() Triggers {
	return Triggers{AlertAfter: trigger.DefaultAlertAfter, Secrets: TriggerSecrets{EnvPrefix: TriggerEnvPrefix}}
}

// TriggerDefaults returns what this installation says of triggers that do not say it
// themselves.
func (c Config) TriggerDefaults() trigger.Defaults {
	s := c.Triggers.Secrets
	return trigger.Defaults{
		AlertAfter: c.Triggers.AlertAfter, Brokers: c.Kafka.Brokers,
		Secrets:   trigger.Secrets{EnvPrefix: s.EnvPrefix, Dir: s.Dir},
		OwnTopics: c.ownTopics(),
	}
}

// ownTopics are the names at the broker of the topics that executions write to.
func (c Config) ownTopics() []string {
	naming := c.TopicNaming()
	var names []string
	for _, spec := range c.TopicSpecs() {
		names = append(names, naming.Physical(spec.Topic))
	}
	return names
}

// triggers checks what triggers may refer to.
func (v *validation) triggers() {
	t := v.c.Triggers
	if t.AlertAfter > trigger.MaxAlertAfter {
		v.fault("triggers.alert_after", "must be at most %s, not %s", formatDuration(trigger.MaxAlertAfter), formatDuration(t.AlertAfter))
	}
	prefix := t.Secrets.EnvPrefix
	switch {
	case prefix == "":
	case len(prefix) < 4 || !strings.HasSuffix(prefix, "_"):
		v.fault("triggers.secrets.env_prefix", "must have 4 characters or more and end in _, such as %s", TriggerEnvPrefix)
	case strings.HasPrefix(prefix, EnvPrefix) && !strings.HasPrefix(prefix, TriggerEnvPrefix), coversOurs(prefix):
		v.fault("triggers.secrets.env_prefix", "names variables of the servers' own settings: want %s or something after it, or one that does not begin with %s", TriggerEnvPrefix, EnvPrefix)
	}
	dir := t.Secrets.Dir
	switch {
	case dir == "":
	case !filepath.IsAbs(dir):
		v.fault("triggers.secrets.dir", "must be an absolute path")
	case filepath.Clean(dir) == "/":
		v.fault("triggers.secrets.dir", "must not be the root of all files: make a folder for what triggers may read")
	case v.c.DataDir != "" && within(v.c.DataDir, dir):
		v.fault("triggers.secrets.dir", "must not hold the data directory, which has the servers' own secrets")
	}
}

// coversOurs says whether a prefix covers variables that the servers read their own secrets
// from.
func coversOurs(prefix string) bool {
	return slices.ContainsFunc([]string{EnvPrefix, "DATABASE_URL"}, func(ours string) bool { return strings.HasPrefix(ours, prefix) })
}

// within says whether a path is a folder, or lies below it.
func within(path, folder string) bool {
	relative, err := filepath.Rel(filepath.Clean(folder), filepath.Clean(path))
	return err == nil && relative != ".." && !strings.HasPrefix(relative, "../")
}
