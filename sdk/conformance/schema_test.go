package conformance_test

import (
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

func TestScenariosFitTheirSchema(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("scenarios.schema.json")
	require.NoError(t, err)
	file, err := os.Open("scenarios.json")
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	document, err := jsonschema.UnmarshalJSON(file)
	require.NoError(t, err)
	require.NoError(t, schema.Validate(document))
}
