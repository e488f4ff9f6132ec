package topics

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The plan must cover every schema of the catalogue, or the hot path is slow.
func TestPlansPassTheExamples(t *testing.T) {
	t.Parallel()
	for _, typ := range Types() {
		schema, err := typ.schema()
		require.NoError(t, err)
		data, err := json.Marshal(typ.Example)
		require.NoError(t, err)
		w := planWalk{data: data}
		assert.True(t, w.value(schema.plan) && w.end(), "%s goes the slow way", typ.Name)
		require.NoError(t, schema.checkFully(data))
	}
}

// agree fails when the plan passes what the full validator refuses, and returns
// whether the plan passes data.
func agree(t require.TestingT, typ Type, data []byte) bool {
	schema, err := typ.schema()
	require.NoError(t, err)
	w := planWalk{data: data}
	if !w.value(schema.plan) || !w.end() || !json.Valid(data) {
		return false
	}
	require.NoError(t, schema.checkFully(data), "%s: the plan passed what is invalid", typ.Name)
	return true
}

// Every value of every example, replaced by every replacement: no chance in it.
func TestPlanAgreesOnEveryReplacement(t *testing.T) {
	t.Parallel()
	for _, typ := range Types() {
		t.Run(typ.Name, func(t *testing.T) {
			t.Parallel()
			data, err := json.Marshal(typ.Example)
			require.NoError(t, err)
			var doc any
			require.NoError(t, json.Unmarshal(data, &doc))
			everyEdit(doc, func() {
				edited, err := json.Marshal(doc)
				require.NoError(t, err)
				agree(t, typ, edited)
			})
		})
	}
}

// everyEdit calls visit while each member below doc in turn is replaced by each
// replacement, is removed, and stands there in capitals as well.
func everyEdit(doc any, visit func()) {
	object, ok := doc.(map[string]any)
	if !ok {
		return
	}
	for _, name := range sortedKeys(object) {
		original := object[name]
		everyEdit(original, visit)
		for _, value := range replacements() {
			object[name] = value
			visit()
		}
		delete(object, name)
		visit()
		object[name] = original
		capitals := strings.ToUpper(name)
		object[capitals] = original
		visit()
		delete(object, capitals)
	}
}

// What the matchers of the plan pass must match the pattern or format that they
// stand for; the usual texts must pass, or the hot path is slow.
func TestPlanMatchers(t *testing.T) {
	t.Parallel()
	code, duration := regexp.MustCompile(patternCode), regexp.MustCompile(patternDuration)
	instants, err := compileSchema("urn:test:instants", []byte(`{"type":"string","format":"date-time"}`))
	require.NoError(t, err)
	validInstant := func(s string) bool { return instants.checkFully(appendText(nil, s)) == nil }

	alphabet := []byte("a9_Zs m.h\n")
	short := []string{""}
	for start, length := 0, 0; length < 4; length++ {
		end := len(short)
		for _, s := range short[start:end] {
			for _, c := range alphabet {
				short = append(short, s+string(c))
			}
		}
		start = end
	}
	for _, s := range short {
		assert.Equal(t, code.MatchString(s), matchesCode([]byte(s)), "%q", s)
		if matchesDuration([]byte(s)) {
			assert.True(t, duration.MatchString(s), "%q", s)
		}
	}
	for _, d := range []time.Duration{time.Millisecond, time.Second, 90 * time.Second, 25 * time.Hour} {
		assert.True(t, matchesDuration([]byte(d.String())), d)
	}

	// Two digits anywhere in an instant, from 00 to 99, and the ends of the months.
	for _, form := range []string{
		"20%02d-01-02T03:04:05Z", "2026-%02d-02T03:04:05Z", "2026-01-%02dT03:04:05Z", "2026-02-%02dT03:04:05Z",
		"2026-04-%02dT03:04:05Z", "2026-12-%02dT03:04:05.5Z", "2026-01-02T%02d:04:05Z", "2026-01-02T03:%02d:05Z",
		"2026-01-02T03:04:%02dZ", "2026-01-02T03:04:05.%02dZ", "2026-01-02T03:04:05+%02d:00", "2026-01-02T03:04:05-01:%02d",
	} {
		for n := range 100 {
			s := fmt.Sprintf(form, n)
			if plainDateTime([]byte(s)) {
				assert.True(t, validInstant(s), s)
				_, ok := parseTime(s)
				assert.True(t, ok, s)
			}
		}
	}
	base := "2026-01-02T03:04:05.123+01:30"
	require.True(t, plainDateTime([]byte(base)))
	for i := range base {
		for _, c := range "0:TZ+-. x" {
			s := base[:i] + string(c) + base[i+1:]
			assert.False(t, plainDateTime([]byte(s)) && !validInstant(s), s)
		}
		assert.False(t, plainDateTime([]byte(base[:i])) && !validInstant(base[:i]), base[:i])
	}
}

// Examples with a few values replaced, removed or added, anywhere.
func TestPlanAgreesWithFullValidator(t *testing.T) {
	t.Parallel()
	var passed, refused int
	rapid.Check(t, func(rt *rapid.T) {
		typ := rapid.SampledFrom(Types()).Draw(rt, "type")
		data, err := json.Marshal(typ.Example)
		require.NoError(rt, err)
		var doc any
		require.NoError(rt, json.Unmarshal(data, &doc))
		for range rapid.IntRange(1, 3).Draw(rt, "edits") {
			doc = mutate(rt, doc)
		}
		data, err = json.Marshal(doc)
		require.NoError(rt, err)
		if agree(rt, typ, data) {
			passed++
		} else {
			refused++
		}
	})
	// Otherwise the property would hold of a plan that passes nothing.
	assert.Positive(t, passed)
	assert.Positive(t, refused)
}

// replacements are JSON texts, so that no two documents share memory.
func replacements() []json.RawMessage {
	texts := []string{
		`null`, `true`, `false`, `0`, `-1`, `1`, `5`, `6`, `1.5`, `1e3`, `1.0`, `123456789012345678901`, `-0`,
		`[]`, `[1]`, `{}`, `{"a":1}`, `{"a":"b"}`,
	}
	for _, s := range []string{
		"", "a", "A", "a_1", "a-b", "stdout", "run", strings.Repeat("é", 200),
		"1s1", "1s5m3", "9a", "_a", "1.5h", "1s", "1m30s", "5", "-1s", "1µs", "1ms", "s",
		"2026-01-02T03:04:05Z", "2026-02-29T03:04:05Z", "2026-04-31T03:04:05Z", "2026-01-02T03:04:60Z",
		"2026-01-02t03:04:05z", "2026-01-02T24:00:00Z", "2026-01-02T03:04:05+24:00", "2026-01-02T03:04:05.Z",
		"2026-01-02T03:04:05.1234567890123+01:30", "0000-01-01T00:00:00Z", "2026-01-02T03:04:05",
	} {
		texts = append(texts, string(appendText(nil, s)))
	}
	values := make([]json.RawMessage, len(texts))
	for i, text := range texts {
		values[i] = json.RawMessage(text)
	}
	return values
}

// mutate replaces, removes or adds one value somewhere in doc.
func mutate(t *rapid.T, doc any) any {
	value := rapid.SampledFrom(replacements())
	object, ok := doc.(map[string]any)
	if !ok || len(object) == 0 || rapid.IntRange(0, 19).Draw(t, "here") == 0 {
		return value.Draw(t, "value")
	}
	name := rapid.SampledFrom(sortedKeys(object)).Draw(t, "member")
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		delete(object, name)
	case 1:
		object[strings.ToUpper(name)] = object[name]
	case 2:
		object["added"] = value.Draw(t, "value")
	default:
		object[name] = mutate(t, object[name])
	}
	return object
}

func FuzzSchemaPlan(f *testing.F) {
	for i, typ := range Types() {
		data, err := json.Marshal(typ.Example)
		require.NoError(f, err)
		f.Add(uint8(i), data)
	}
	f.Add(uint8(0), []byte(`{"a":"\`))
	f.Add(uint8(0), []byte(`[[{"a":1}],"b"]`))
	f.Fuzz(func(t *testing.T, i uint8, data []byte) {
		types := Types()
		typ := types[int(i)%len(types)]
		agree(t, typ, data)
		_, err := DecodeEvent(Envelope{Type: typ.Name, Data: data})
		if fault := (*DecodeError)(nil); err != nil && !errors.As(err, &fault) {
			t.Fatalf("%T is no DecodeError", err)
		}
	})
}
