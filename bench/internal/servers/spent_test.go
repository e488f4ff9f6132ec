package servers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpentIsPerEvent(t *testing.T) {
	t.Parallel()
	one := Spent{Events: 50, Wall: time.Millisecond, Own: 500 * time.Microsecond, Postgres: time.Millisecond}
	both := one
	both.Add(Spent{Events: 50, Wall: time.Millisecond, Kafka: 1500 * time.Microsecond})
	assert.Equal(t, []string{"5.0", "10.0", "15.0", "1.5"}, both.Cells())
	assert.Len(t, both.Cells(), len(SpentHeading()))
	assert.InDelta(t, 30, both.PerEvent(), 1e-9)
	assert.InDelta(t, 1.5, one.Cores(), 1e-9)
	text, err := json.Marshal(both)
	require.NoError(t, err)
	assert.JSONEq(t, `{"own_us_per_event":5,"postgres_us_per_event":10,"kafka_us_per_event":15,"cores_busy":1.5}`, string(text))
	assert.Equal(t, []string{"0.0", "0.0", "0.0", "0.0"}, Spent{}.Cells())
}
