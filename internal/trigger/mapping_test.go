package trigger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// args is an execution whose spec has these arguments.
func args(text string) string {
	return execution(`{"executor":"function","spec":{"name":"f","args":` + text + `},"concurrency_key":"${key}"}`)
}

// TestWhatExpressionsGive holds what becomes of an expression in a string.
func TestWhatExpressionsGive(t *testing.T) {
	t.Parallel()
	const body = `{ "s": "a\u00e9<b>", "n": 12345678901234567890, "f": 1.10, "i": 7, "t": true, "z": null, "l": [1, {"a": 2}], "o": {"b": 1, "a": 2}, "a b": "spaced", "x/y": 1, "s": "last" }`
	for source, want := range map[string]string{
		`"${body.s}"`:                         `"last"`, // of two of a name the last counts
		`"${body.n}"`:                         `12345678901234567890`,
		`"${body.f}"`:                         `1.10`,
		`"${ body.i }"`:                       `7`,
		`"${body.t}"`:                         `true`,
		`"${body.z}"`:                         `null`,
		`"${body.none}"`:                      `null`,
		`"${body.l}"`:                         `[1,{"a":2}]`,
		`"${body.o}"`:                         `{"b":1,"a":2}`,
		`"${body['a b']}"`:                    `"spaced"`,
		`"${body[\"x/y\"]}"`:                  `1`,
		`"${body.l[1].a}"`:                    `2`,
		`"${body.i + 1}"`:                     `8`,
		`"${body.f * 2}"`:                     `2.2`,
		`"${body.none ?? 'x'}"`:               `"x"`,
		`"${body.none.deep ?? 'x'}"`:          `"x"`,
		`"${body.s + '<'}"`:                   `"last<"`,
		`"${ {'a': body.i, 'b': [body.s]} }"`: `{"a":7,"b":["last"]}`,
		`"n-${body.i}-${body.t}"`:             `"n-7-true"`,
		`"${body.o} and ${body.f}"`:           `"{\"b\":1,\"a\":2} and 1.10"`,
		`"$${body.s} $ {} $$"`:                `"${body.s} $ {} $$"`,
		`"cost: $5 ${'}'}"`:                   `"cost: $5 }"`,
		`"${key}"`:                            `"k-1"`,
		`"${headers.raw}"`:                    `"/w=="`,
		`"${headers['X-Kind']}"`:              `"new"`,
		`"${headers['x-kind']}"`:              `"new"`,
		`"${headers.none}"`:                   `null`,
		`"${meta.offset}"`:                    `9007199254740993`,
		`"${meta.topic}"`:                     `"orders"`,
		`"${time}"`:                           `"2026-01-02T02:04:05.0000006Z"`,
		`"${trigger.id}:${trigger.uid}:${trigger.type}:${trigger.revision}"`: `"orders:u-1:kafka:7"`,
		`"${event == null}"`:       `true`,
		`"${event.id ?? key}"`:     `"k-1"`,
		`"${raw}"`:                 string(mustJSON(t, body)),
		`"${contains(body.l, 1)}"`: `true`,
		`"plain"`:                  `"plain"`,
		`{"a": ["${body.i}", {"b": "${body.s}"}], "c": 1.0, "d": {}, "e": []}`: `{"a":[7,{"b":"last"}],"c":1.0,"d":{},"e":[]}`,
	} {
		r, err := compile(t, args(source)).Execution(t.Context(), message(body))
		require.NoError(t, err, source)
		assert.Equal(t, `{"name":"f","args":`+want+`}`, string(r.Spec), source)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(v))
	return []byte(strings.TrimSpace(out.String()))
}

// TestAnEventIsRead holds what expressions see of a CloudEvent.
func TestAnEventIsRead(t *testing.T) {
	t.Parallel()
	v := message(``)
	v.Event = &topics.Envelope{
		ID: "e-1", Source: "/shop", Type: "order.placed", Subject: "o-7", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Sequence: 4,
		Extensions: map[string]string{"region": "eu", "id": "not this one"},
	}
	r, err := compile(t, args(`["${event.id}", "${event.source}", "${event.type}", "${event.subject}", "${event.time}", "${event.sequence}", "${event.region}", "${event.none}", "${body}"]`)).
		Execution(t.Context(), v)
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"f","args":["e-1","/shop","order.placed","o-7","2026-01-02T03:04:05Z",4,"eu",null,{}]}`, string(r.Spec))
}

// TestTextsArePutWhereProgramsWantTexts holds that numbers and objects of a message can be
// handed to a program.
func TestTextsArePutWhereProgramsWantTexts(t *testing.T) {
	t.Parallel()
	r, err := compile(t, execution(`{"executor":"process","spec":{"command":["echo","${body.n}","${body.o}"],"env":{"N":"${body.n}","O":"${body.o}"},"stdin":"${body}"},"concurrency_key":"${body.n}"}`)).
		Execution(t.Context(), message(`{"n": 1.50, "o": {"a": 1}}`))
	require.NoError(t, err)
	assert.Equal(t, `{"command":["echo","1.50","{\"a\":1}"],"env":{"N":"1.50","O":"{\"a\":1}"},"stdin":"{\"n\":1.50,\"o\":{\"a\":1}}"}`, string(r.Spec))
	assert.Equal(t, "1.50", r.ConcurrencyKey)
}

// TestMappingsThatFail holds that the message is told what is wrong, and where.
func TestMappingsThatFail(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		`{"executor":"function","spec":{"name":"f"},"concurrency_key":"${body.none}"}`:          "/concurrency_key: the expression gives nothing: without a key the execution would run in any order",
		`{"executor":"function","spec":{"name":"f"},"concurrency_key":"a-${body.none}"}`:        "/concurrency_key: ${body.none} gives nothing, which would leave a gap in a text",
		`{"executor":"function","spec":{"name":"f"},"concurrency_key":"${body.o}"}`:             "/concurrency_key: must be a text, not an object",
		`{"executor":"${body.none}","spec":{"name":"f"}}`:                                       "/executor: the expression gives nothing",
		`{"executor":"function","spec":{"name":"f","args":{"a":"${body.none.deeper}"}}}`:        "/spec/args/a: evaluate \"body.none.deeper\": line 1, column",
		`{"executor":"function","spec":{"name":"f"},"priority":"${body.o}"}`:                    "/priority: must be a whole number, not an object",
		`{"executor":"function","spec":{"name":"f"},"priority":"${body.n}"}`:                    "/priority: must be between 1 and 5, not 99",
		`{"executor":"function","spec":{"name":"f"},"not_before":"${body.s}"}`:                  "/not_before: must be a time as in RFC 3339",
		`{"executor":"function","spec":{"name":"f"},"limits":{"run":"${body.s}"}}`:              "/limits/run: want a text such as 1m30s",
		`{"executor":"function","spec":{"name":"f"},"labels":{"a":"${body.o}"}}`:                "/labels/a: must be a text, not an object",
		`{"executor":"function","spec":{"name":"f"},"labels":"${body.s}"}`:                      "/labels: must be an object, not a text",
		`{"executor":"function","spec":{"name":"f","args":"${body.n / 0}"}}`:                    "/spec/args: evaluate \"body.n / 0\": the result is no number",
		`{"executor":"function","spec":{"name":"f","args":"${len(body.n)}"}}`:                   "/spec/args: evaluate \"len(body.n)\"",
		`{"executor":"function","spec":{"name":"f","args":"${map(1..1000, map(1..1000, 1))}"}}`: "/spec/args: evaluate \"map(1..1000, map(1..1000, 1))\": the expression costs too much",
	} {
		_, err := compile(t, execution(template)).Execution(t.Context(), message(`{"o": {}, "n": 99, "s": "soon"}`))
		var fault *trigger.MappingError
		require.ErrorAs(t, err, &fault, template)
		assert.Equal(t, trigger.CodeMapping, fault.Code, template)
		assert.True(t, strings.HasPrefix(fault.Error(), "/target/execution"+want), "%s\ngives %s", template, fault)
	}
	_, err := compile(t, `{"id":"a","webhook":{"auth":{"none":true}},"target":{"workflow":{"id":"w","input":"${body.a}"}}}`).Workflow(t.Context(), message(`{}`))
	var fault *trigger.MappingError
	require.ErrorAs(t, err, &fault)
	assert.Equal(t, "/target/workflow/input: must be an object, the variables of the instance, not nothing", fault.Error())
}

// TestTheEndOfTheContextIsNotTheMessagesFault keeps a message from becoming a dead letter
// because a process stops.
func TestTheEndOfTheContextIsNotTheMessagesFault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := compile(t, args(`"${map(1..100, # * 2)}"`)).Execution(ctx, message(`{}`))
	require.Error(t, err)
	var fault *trigger.MappingError
	require.NotErrorAs(t, err, &fault)
	_, err = compile(t, args(`1`)).Workflow(t.Context(), message(`{}`))
	require.Error(t, err)
	require.NotErrorAs(t, err, &fault, "a target of another kind is a fault of the program")
}

// TestMappingsShareNothing maps messages side by side, whose results are then changed.
func TestMappingsShareNothing(t *testing.T) {
	t.Parallel()
	compiled := compile(t, execution(`{"executor":"function","spec":{"name":"f","args":"${body.n}"},"labels":{"fixed":"1"},"retry":{"max_attempts":2,"never_on":["signal"]}}`))
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for range 50 {
				r, err := compiled.Execution(t.Context(), message(fmt.Sprintf(`{"n": %d}`, n)))
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, fmt.Sprintf(`{"name":"f","args":%d}`, n), string(r.Spec))
				assert.Equal(t, map[string]string{"fixed": "1"}, r.Labels)
				r.Labels["mine"] = "2"
			}
		})
	}
	group.Wait()
}

// FuzzMapping holds that no body and no template breaks the mapping.
func FuzzMapping(f *testing.F) {
	f.Add(`{"a": {"b": [1, 2]}}`, "${body.a.b}")
	f.Add(`{"a": 1.5e3, "a": "\u00e9"}`, "x-${body.a}-$${y}")
	f.Add(" {\n} ", "${raw} ${body?.a ?? headers}")
	f.Fuzz(func(t *testing.T, body, text string) {
		d, faults := trigger.Decode([]byte(args(string(mustJSON(t, text)))))
		if len(faults) > 0 {
			return
		}
		compiled, _ := trigger.Compile(trigger.Stored{Definition: d}, installed())
		if compiled == nil {
			return
		}
		r, err := compiled.Execution(t.Context(), message(body))
		if err == nil {
			assert.True(t, json.Valid(r.Spec), "%s", r.Spec)
		}
	})
}

func BenchmarkMapping(b *testing.B) {
	var d trigger.Definition
	require.NoError(b, json.Unmarshal([]byte(execution(`{"executor":"function","spec":{"name":"invoice","args":{"order":"${body}","customer":"${body.customer.id}"}},`+
		`"concurrency_key":"customer-${body.customer.id}","labels":{"kind":"${body.kind ?? 'none'}"}}`)), &d))
	compiled, _ := trigger.Compile(trigger.Stored{Definition: d}, installed())
	require.NotNil(b, compiled)
	v := message(`{"id": "o-1", "customer": {"id": 42, "name": "Ada"}, "items": [` + strings.Repeat(`{"sku": "a-1", "count": 2, "price": 19.90},`, 9) + `{"sku": "b"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compiled.Execution(b.Context(), v); err != nil {
			b.Fatal(err)
		}
	}
}
