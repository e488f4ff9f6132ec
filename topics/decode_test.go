package topics

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func requireFault(t testing.TB, err error, code, field string) *DecodeError {
	t.Helper()
	var fault *DecodeError
	require.ErrorAs(t, err, &fault)
	assert.Equal(t, code, fault.Code, fault.Error())
	assert.Equal(t, field, fault.Field, fault.Error())
	assert.NotEmpty(t, fault.Message)
	require.ErrorIs(t, err, ErrMalformed)
	return fault
}

func TestDecode(t *testing.T) {
	t.Parallel()
	want := ExecutionCompleted{
		ExecutionID: "e-1", Attempt: 2, Worker: "w", ExitCode: new(0), Value: json.RawMessage(`{"n":1}`),
		StartedAt: exampleTime(), FinishedAt: exampleTime().Add(time.Second), DurationMillis: 1000,
	}
	env, err := NewEnvelope(want)
	require.NoError(t, err)

	got, err := Decode[ExecutionCompleted](env)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	pointer, err := Decode[*ExecutionCompleted](env)
	require.NoError(t, err)
	assert.Equal(t, want, *pointer)

	event, err := DecodeEvent(env)
	require.NoError(t, err)
	assert.Equal(t, want, event)

	require.NoError(t, ValidateData(env))

	_, err = Decode[ExecutionFailed](env)
	requireFault(t, err, CodeUnexpectedType, "type")
}

func TestDecodeBadData(t *testing.T) {
	t.Parallel()
	good, err := NewEnvelope(exampleOf(t, "millrace.execution.requested.v1"))
	require.NoError(t, err)
	edit := func(before, after string) string {
		require.Contains(t, string(good.Data), before)
		return strings.Replace(string(good.Data), before, after, 1)
	}
	tests := []struct {
		name, data, code, field string
	}{
		{"unknown field is accepted", edit(`{"execution_id"`, `{"added_later":[1,{}],"execution_id"`), "", ""},
		{"unknown origin is accepted", edit(`"kind":"rest"`, `"kind":"carrier_pigeon"`), "", ""},
		{"white space is accepted", " \n" + edit(`,`, " ,\t\r\n") + " ", "", ""},
		{"escaped names and leap years are accepted", edit(`{"execution_id"`, `{"\u0065xecution_id"`), "", ""},
		{"the 29th of February is accepted", edit(`"requested_at":"2026-01-02`, `"requested_at":"2028-02-29`), "", ""},
		{"priority too high", edit(`"priority":3`, `"priority":6`), CodeSchemaViolation, "/request/priority"},
		{"priority as text", edit(`"priority":3`, `"priority":"3"`), CodeSchemaViolation, "/request/priority"},
		{"priority with a fraction", edit(`"priority":3`, `"priority":3.5`), CodeSchemaViolation, "/request/priority"},
		{"integer that Go does not read", edit(`"priority":3`, `"priority":3.0`), CodeInvalidData, "/request/priority"},
		{"integer too large", edit(`"cpu_millis":250`, `"cpu_millis":99999999999999999999`), CodeInvalidData, "/request/requirements/cpu_millis"},
		{"required member missing", edit(`"executor":"process",`, ``), CodeSchemaViolation, "/request/executor"},
		{"required member null", edit(`"executor":"process"`, `"executor":null`), CodeSchemaViolation, "/request/executor"},
		{"no duration", edit(`"run":"1m30s"`, `"run":"90 seconds"`), CodeSchemaViolation, "/request/limits/run"},
		{"no time", edit(`"requested_at":"2026-01-02T`, `"requested_at":"2026-13-02T`), CodeSchemaViolation, "/requested_at"},
		{"label that is no text", edit(`"team":"billing"`, `"te/am":7`), CodeSchemaViolation, "/request/labels/te~1am"},
		{"empty id", edit(exampleExecutionID, ``), CodeSchemaViolation, "/execution_id"},
		{"id too long", edit(exampleExecutionID, strings.Repeat("x", 256)), CodeSchemaViolation, "/execution_id"},
		{"field twice", edit(`"priority":3`, `"priority":3,"priority":4`), CodeAmbiguousField, "/request/priority"},
		{"field in other letters", edit(`"priority":3`, `"priority":3,"Priority":9`), CodeAmbiguousField, "/request/priority"},
		{"field hidden by an escape", edit(`"priority":3`, `"priority":3,"\u0050riority":9`), CodeAmbiguousField, "/request/priority"},
		{"an array", `[]`, CodeSchemaViolation, ""},
		{"null", `null`, CodeSchemaViolation, ""},
		{"empty", ``, CodeMalformedJSON, ""},
		{"cut off", edit(`}`, ``)[:100], CodeMalformedJSON, "/request"},
		{"trailing", string(good.Data) + `{}`, CodeMalformedJSON, ""},
		{"not JSON", `<xml/>`, CodeMalformedJSON, ""},
		{"not UTF-8", edit(`"user":"ada"`, "\"user\":\"\xff\""), CodeInvalidUTF8, ""},
		{"deep nesting in an open field", edit(`{"command":["echo","hello"]}`, strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)), CodeMalformedJSON, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := good
			env.Data = []byte(tt.data)
			_, err := Decode[ExecutionRequested](env)
			if tt.code == "" {
				require.NoError(t, err)
				require.NoError(t, ValidateData(env))
				return
			}
			requireFault(t, err, tt.code, tt.field)
			_, err = DecodeEvent(env)
			requireFault(t, err, tt.code, tt.field)
		})
	}
}

func exampleOf(t testing.TB, name string) Event {
	t.Helper()
	typ, ok := Lookup(name)
	require.True(t, ok)
	return typ.Example
}

func TestDecodeErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	env, err := NewEnvelope(exampleOf(t, "millrace.execution.started.v1"))
	require.NoError(t, err)
	for _, edit := range [][2]string{
		{`"attempt":1`, `"attempt":"hunter2"`},
		{`"lease_expires_at":"2026`, `"lease_expires_at":"hunter2`},
		{`"attempt":1`, `"attempt":hunter2`},
		{`"worker":"worker-1"`, `"worker":{"hunter2":1}`},
	} {
		bad := env
		bad.Data = []byte(strings.Replace(string(env.Data), edit[0], edit[1], 1))
		require.NotEqual(t, env.Data, bad.Data)
		_, err := DecodeEvent(bad)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

func TestDecodeContentType(t *testing.T) {
	t.Parallel()
	env, err := NewEnvelope(exampleOf(t, "millrace.execution.started.v1"))
	require.NoError(t, err)
	for _, ok := range []string{"", "application/json", "Application/JSON; charset=utf-8", "application/vnd.millrace+json", "text/json"} {
		env.DataContentType = ok
		_, err := Decode[ExecutionStarted](env)
		require.NoError(t, err, ok)
	}
	for _, bad := range []string{"text/plain", "application/jsonl", "application/x-protobuf"} {
		env.DataContentType = bad
		_, err := Decode[ExecutionStarted](env)
		requireFault(t, err, CodeUnsupportedContentType, "datacontenttype")
	}
}

// orderPlaced is a type of a user: not in the catalogue, so without a schema.
type orderPlaced struct {
	OrderID string `json:"order_id"`
	Total   int    `json:"total"`
}

func (orderPlaced) EventType() string  { return "com.example.order.placed" }
func (o orderPlaced) EventKey() string { return o.OrderID }

func TestDecodeUsersType(t *testing.T) {
	t.Parallel()
	env, err := NewEnvelope(orderPlaced{"o-1", 42}, WithSource("/shop"))
	require.NoError(t, err)
	assert.Empty(t, env.DataSchema)
	assert.Equal(t, "o-1", env.Subject)

	got, err := Decode[orderPlaced](env)
	require.NoError(t, err)
	assert.Equal(t, orderPlaced{"o-1", 42}, got)

	_, err = DecodeEvent(env)
	requireFault(t, err, CodeUnexpectedType, "type")

	env.Data = []byte(`{"total":"much"}`)
	_, err = Decode[orderPlaced](env)
	requireFault(t, err, CodeInvalidData, "/total")
	env.Data = []byte(`{"total":`)
	_, err = Decode[orderPlaced](env)
	requireFault(t, err, CodeMalformedJSON, "")
	requireFault(t, ValidateData(env), CodeMalformedJSON, "")
}
