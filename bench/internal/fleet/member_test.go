package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/bench/internal/fleet"
)

func TestMetricsAreSummed(t *testing.T) {
	t.Parallel()
	m := fleet.Metrics{`calls{call="create pod"}`: 2, `calls{call="get pod"}`: 3, "calls_total": 7, "calls": 1}
	assert.InDelta(t, 6.0, m.Sum("calls"), 0)
	assert.Zero(t, m.Sum("none"))
}
