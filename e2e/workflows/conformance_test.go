package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/conformance"
)

// TestConformance runs the scenarios that every SDK has to pass on a real engine.
func TestConformance(t *testing.T) {
	t.Parallel()
	file, err := conformance.Load("../../sdk/conformance/scenarios.json")
	require.NoError(t, err)
	everyTransport(t, func(t *testing.T, _ string, engine client.EngineClient) {
		// Scenarios run side by side and may outlive this function, but not the client.
		t.Run("scenarios", func(t *testing.T) {
			conformance.Run(t, file, func(*testing.T) conformance.Host { return &conformance.Engine{Via: engine, Run: work} })
		})
	})
}
