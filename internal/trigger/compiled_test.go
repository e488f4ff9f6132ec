package trigger_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// compile compiles a definition that is written as JSON; it must have no faults.
func compile(t *testing.T, text string) *trigger.Compiled {
	t.Helper()
	var d trigger.Definition
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	compiled, faults := trigger.Compile(trigger.Stored{Definition: d, UID: "u-1", Revision: 7}, installed())
	require.NoError(t, trigger.Refused(faults))
	return compiled
}

// installed is what the installation of the tests says.
func installed() trigger.Defaults {
	return trigger.Defaults{
		Brokers: []string{"kafka:9092"},
		Secrets: trigger.Secrets{EnvPrefix: "MILLRACE_TRIGGER_", Dir: "/run/secrets"},
	}
}

// execution is a Kafka trigger with a target of this template.
func execution(template string) string {
	return `{"id":"orders","tenant":"acme","user":"ann","kafka":{"topics":["orders"]},"target":{"execution":` + template + `}}`
}

func message(body string) *trigger.Variables {
	return &trigger.Variables{
		Body: []byte(body), Key: []byte("k-1"), Time: time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("x", 3600)),
		Headers:  []topics.Header{{Key: "X-Kind", Value: []byte("new")}, {Key: "X-Kind", Value: []byte("old")}, {Key: "raw", Value: []byte{0xff}}},
		Metadata: json.RawMessage(`{"topic":"orders","offset":9007199254740993}`),
	}
}

func TestAMessageIsMappedToAnExecution(t *testing.T) {
	t.Parallel()
	compiled := compile(t, execution(`{
		"executor": "function",
		"spec": {"name": "invoice", "args": {"order": "${body.order}", "total": "${body.order.amount * 2}", "kind": "${headers['x-kind']}", "offset": "${meta.offset}"}},
		"concurrency_key": "customer-${body.order.customer}",
		"priority": "${body.urgent ? 5 : 2}",
		"labels": {"team": "${body.team}", "count": "${len(body.order.items)}", "none": "${body.none}"},
		"limits": {"run": "10m"}, "retry": {"max_attempts": 3}, "requirements": {"slots": 2}
	}`))
	r, err := compiled.Execution(t.Context(), message(`{"order": {"customer": 42, "amount": 1.5, "items": [1, 2], "big": 12345678901234567890, "price": 1.10}, "team": "blue", "urgent": true}`))
	require.NoError(t, err)
	assert.Equal(t, `{"name":"invoice","args":{"order":{"customer":42,"amount":1.5,"items":[1,2],"big":12345678901234567890,"price":1.10},"total":3,"kind":"new","offset":9007199254740993}}`, string(r.Spec))
	r.Spec = nil
	assert.Equal(t, topics.Request{
		Tenant: "acme", User: "ann", Executor: "function", ConcurrencyKey: "customer-42", Priority: 5,
		Labels: map[string]string{"team": "blue", "count": "2"}, Limits: topics.Limits{Run: topics.Duration(10 * time.Minute)},
		Retry: topics.Retry{MaxAttempts: 3}, Requirements: topics.Requirements{Slots: 2},
		Origin: topics.Origin{Kind: "kafka", Trigger: "orders"},
	}, r)
}

func TestAMessageIsMappedToAnInstance(t *testing.T) {
	t.Parallel()
	compiled := compile(t, `{"id":"loans","webhook":{"auth":{"none":true}},"target":{"workflow":{"id":"loan","version":3,"business_key":"${body.id}"}}}`)
	assert.Equal(t, trigger.KindInstance, compiled.Kind())
	start, err := compiled.Workflow(t.Context(), message(`{ "id": "l-7", "amount": 1e400 }`))
	require.NoError(t, err)
	assert.Equal(t, trigger.Start{DefinitionID: "loan", Version: 3, BusinessKey: "l-7", Variables: json.RawMessage(`{"id":"l-7","amount":1e400}`)}, start)
}

func TestWhatIsNoObjectIsPoison(t *testing.T) {
	t.Parallel()
	compiled := compile(t, execution(`{"executor":"function","spec":{"name":"f"}}`))
	for body, code := range map[string]string{
		"": trigger.CodeNotJSON, "{": trigger.CodeNotJSON, "hello": trigger.CodeNotJSON, "{\"a\":\"\xff\"}": trigger.CodeNotJSON, "{} {}": trigger.CodeNotJSON,
		"[]": trigger.CodeNotObject, "1": trigger.CodeNotObject, " null": trigger.CodeNotObject, `"x"`: trigger.CodeNotObject,
	} {
		_, err := compiled.Execution(t.Context(), message(body))
		var fault *trigger.MappingError
		require.ErrorAs(t, err, &fault, body)
		assert.Equal(t, code, fault.Code, body)
	}
}
