package retention

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWindowCheck(t *testing.T) {
	t.Parallel()
	topics := map[string]time.Duration{"events": 90 * day, "tasks": 3 * day}
	assert.Empty(t, Window{Inbox: 120 * day, Outbox: 30 * day, Topics: topics}.Check())

	warnings := Window{Inbox: 119 * day, Outbox: 30 * day, Topics: topics}.Check()
	require.Len(t, warnings, 1)
	for _, part := range []string{"retention.inbox is 119d", "120d", "topic events", "set retention.inbox to 120d or more"} {
		assert.Contains(t, warnings[0], part)
	}
	topics["forever"] = -1
	warnings = Window{Inbox: 120 * day, Outbox: 30 * day, Topics: topics}.Check()
	require.Len(t, warnings, 1)
	assert.Contains(t, warnings[0], "for ever in forever")
}
