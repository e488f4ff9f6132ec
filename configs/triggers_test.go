package configs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/trigger"
)

func TestTriggers(t *testing.T) {
	t.Parallel()
	c, err := configs.Sources{Environ: []string{
		"MILLRACE_DATA_DIR=/data", "MILLRACE_TRIGGERS_SECRETS_DIR=/run/secrets/triggers", "MILLRACE_TRIGGERS_ALERT_AFTER=10m",
		"MILLRACE_KAFKA_BROKERS=kafka:9092", "MILLRACE_TOPICS_EXECUTION_EVENTS_NAME=prod.execution_events",
		"MILLRACE_TRIGGER_ORDERS=hunter2", // a secret of a trigger, and no setting
	}}.Load()
	require.NoError(t, err)
	d := c.TriggerDefaults()
	assert.Equal(t, trigger.Secrets{EnvPrefix: "MILLRACE_TRIGGER_", Dir: "/run/secrets/triggers"}, d.Secrets)
	assert.Equal(t, "10m0s", d.AlertAfter.String())
	assert.Equal(t, []string{"kafka:9092"}, d.Brokers)
	assert.Contains(t, d.OwnTopics, "prod.execution_events")
}

// TestTriggersCannotReachTheServersSecrets holds that no setting lets a definition name them
// by a slip of the hand.
func TestTriggersCannotReachTheServersSecrets(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"MILLRACE_", "MILLRACE_TRIGGER", "MILLRACE_TRIGGERS_", "MILLRACE_KAFKA_", "M", "_", "PG", "DATABASE_"} {
		c := configs.Default()
		c.Triggers.Secrets.EnvPrefix = prefix
		assert.ErrorContains(t, c.Validate(), "triggers.secrets.env_prefix", prefix)
	}
	for _, prefix := range []string{"", "MILLRACE_TRIGGER_", "MILLRACE_TRIGGER_TEAM_", "ACME_HOOKS_"} {
		c := configs.Default()
		c.Triggers.Secrets.EnvPrefix = prefix
		assert.NoError(t, c.Validate(), prefix)
	}
	for dir, fine := range map[string]bool{"": true, "/run/secrets": true, "/data/..": false, "/": false, "secrets": false, "/data": false, "/data/secrets": true, "/data/": false} {
		c := configs.Default()
		c.DataDir, c.Triggers.Secrets.Dir = "/data", dir
		err := c.Validate()
		if fine {
			assert.NoError(t, err, dir)
		} else {
			assert.ErrorContains(t, err, "triggers.secrets.dir", dir)
		}
	}
}
