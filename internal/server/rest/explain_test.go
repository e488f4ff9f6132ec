package rest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/admission"
	"github.com/millrace/millrace/internal/execution"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *Deps, c *Config) {
		c.Terms.Caps = map[string]admission.Resources{"default": {admission.Slots: 2}}
	})
	path := b.do("POST", "/v1/executions", strings.TrimSuffix(echo, "}")+`,"requirements":{"slots":3}}`).Header().Get("Location")
	id := strings.TrimPrefix(path, "/v1/executions/")
	x := decode[Explanation](t, b.do("GET", path+"/explain", ""))
	assert.Equal(t, id, x.ExecutionID)
	assert.Equal(t, execution.Requested, x.State)
	assert.Equal(t, "It has been REQUESTED for 1m: it is stored, and no coordinator has looked at it yet.", x.Summary)
	require.Len(t, x.Waits, 1)
	assert.Equal(t, execution.WaitCoordinator, x.Waits[0].Code)
	assert.NotEmpty(t, x.Waits[0].Release)

	require.NoError(t, b.store.executions[id].Queue(time.Now(), execution.DefaultPolicy()))
	x = decode[Explanation](t, b.do("GET", path+"/explain", ""))
	assert.Equal(t, execution.WaitTooLarge, x.Waits[0].Code, "the coordinator's own limit counts")

	requireProblem(t, b.do("GET", "/v1/executions/nope/explain", ""), 404, "execution_not_found")
}

func TestATenantExplainsItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(d *Deps, _ *Config) { d.Guard = tokens() })
	path := b.do("POST", "/v1/executions", echo, "Authorization", "Bearer admin").Header().Get("Location")
	require.Equal(t, 200, b.do("GET", path+"/explain", "", "Authorization", "Bearer viewer").Code)
	requireProblem(t, b.do("GET", path+"/explain", "", "Authorization", "Bearer acme"), 404, "execution_not_found")
}

func TestWaitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	field, ok := reflect.TypeFor[Wait]().FieldByName("Code")
	require.True(t, ok)
	documented := strings.FieldsFunc(strings.ReplaceAll(field.Tag.Get("doc"), " or ", ", "), func(r rune) bool { return r == ',' || r == ' ' })
	var codes []string
	for _, code := range execution.WaitCodes() {
		codes = append(codes, string(code))
	}
	assert.ElementsMatch(t, codes, documented)
}
