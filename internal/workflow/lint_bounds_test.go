package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// chain writes a definition of n tasks in a row.
func chain(n int) string {
	var steps strings.Builder
	for i := range n {
		fmt.Fprintf(&steps, `{"id":"s%d","name":"S","type":"SERVICE_TASK","nextStep":"s%d"},`, i, i+1)
	}
	return `{"id":"chain","name":"Chain","steps":[` + steps.String() + fmt.Sprintf(`{"id":"s%d","name":"E","type":"END"}]}`, n)
}

func codes(faults []Fault) []string {
	var list []string
	for _, f := range faults {
		list = append(list, f.Code)
	}
	return list
}

func TestLintIsBounded(t *testing.T) {
	t.Parallel()
	_, faults := Lint([]byte(chain(MaxSteps - 1)))
	assert.Empty(t, faults)
	_, faults = Lint([]byte(chain(MaxSteps)))
	assert.Equal(t, []string{codeTooLarge}, codes(faults))
	assert.Contains(t, faults[0].Message, "2001 steps, at most 2000")

	d, faults := Lint([]byte(`{"id": "` + strings.Repeat("x", MaxText) + `"}`))
	assert.Nil(t, d)
	assert.Equal(t, []string{codeTooLarge}, codes(faults))

	_, faults = Lint([]byte(strings.Repeat(`{"a":`, 1000)))
	assert.Equal(t, []string{codeSyntax}, codes(faults))
	assert.Contains(t, faults[0].Message, "nested deeper than 100")

	var branches []string
	for i := range maxExpressions + 1 {
		branches = append(branches, fmt.Sprintf(`"#a == %d":"s1"`, i))
	}
	_, faults = Lint([]byte(`{"id":"a","name":"A","steps":[{"id":"s0","name":"S","type":"DECISION","conditionalNextSteps":{` + strings.Join(branches, ",") + `}},{"id":"s1","name":"E","type":"END"}]}`))
	assert.Equal(t, []string{codeTooLarge}, codes(faults))
}

// Of many faults some are told, and what cannot be used never seems usable.
func TestFaultsAreTold(t *testing.T) {
	t.Parallel()
	text := `{"id":"a","name":"A","steps":[{"id":"s0","name":"S","type":"END"}]` + strings.Repeat(`,"warning":1`, 3*maxFaults) + `}`
	_, faults := Lint([]byte(text))
	assert.Len(t, faults, maxFaults)
	require.Error(t, Refused(faults))

	var steps []string
	for i := range 3 * maxFaults {
		steps = append(steps, fmt.Sprintf(`{"id":"s%d","name":"S","type":"SERVICE_TASK","unknown%d":1,"nextStep":"s%d"}`, i, i, i+1))
	}
	_, faults = Lint([]byte(`{"id":"a","name":"A","steps":[` + strings.Join(steps, ",") + `]}`))
	assert.Len(t, faults, maxFaults)
	require.ErrorContains(t, Refused(faults), "and there are more faults", "the fault comes after hundreds of warnings")

	err := Refused([]Fault{{Line: 3, Column: 4, Code: "x", Message: "one thing"}, {Path: "steps[1].id", Code: "y", Message: "another", Hint: "do this"}, {Warning: true, Message: "no"}})
	assert.EqualError(t, err, "the definition has 2 faults: 3:4: error: one thing [x]; steps[1].id: error: another [y]; do this")
	require.NoError(t, Refused([]Fault{{Warning: true}}))
}

// Gateways in gateways that cannot be told apart are refused instead of being looked at
// for ever.
func TestEntangledGatewaysAreRefused(t *testing.T) {
	t.Parallel()
	// Each gateway leads to all the others, so that they can be open in any order.
	const n = 12
	var steps []string
	for i := range n {
		var next []string
		for j := range n {
			if j != i {
				next = append(next, fmt.Sprintf(`"g%d"`, j))
			}
		}
		steps = append(steps, fmt.Sprintf(`{"id":"g%d","name":"G","type":"PARALLEL_GATEWAY","parallelNextSteps":[%s],"joinStep":"j%d"},{"id":"j%d","name":"J","type":"JOIN_GATEWAY","nextStep":"end"}`, i, strings.Join(next, ","), i, i))
	}
	_, faults := Lint([]byte(`{"id":"a","name":"A","steps":[` + strings.Join(steps, ",") + `,{"id":"end","name":"E","type":"END"}]}`))
	assert.Contains(t, codes(faults), codeComplex)
}

// A definition without a text has its faults without lines.
func TestCompileTellsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := Compile(&Definition{ID: "a", Steps: []Step{{ID: "s", Name: "S", Type: ServiceTask, NextStep: "none"}}})
	var faults *FaultsError
	require.ErrorAs(t, err, &faults)
	assert.ElementsMatch(t, []string{codeRequired, codeReference, codeNoEnd}, codes(faults.Faults))
	for _, f := range faults.Faults {
		assert.Zero(t, f.Line)
		assert.NotEmpty(t, f.Path)
	}
}

func TestParseTellsWhatIsNoDefinition(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("{\n  \"id\": 7,\n  \"steps\": 8\n}"))
	require.EqualError(t, err, "the definition has 2 faults: 2:9: error: id is a string, not a number [wrong_type]; 3:12: error: steps is a list, not a number [wrong_type]")
	_, err = Parse([]byte("{"))
	require.ErrorContains(t, err, "1:2")
	d, err := Parse([]byte(`{"id": "a b", "unknown": 1}`))
	require.NoError(t, err, "the rest is for Lint")
	assert.Equal(t, "a b", d.ID)
}

// What is parsed and written again is the same, in the same order and with numbers as
// they were.
func TestOrderAndNumbersSurvive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z#$ {}<>&"'éß=0-9]{1,12}`), 0, 8, rapid.ID[string]).Draw(t, "names")
		step := Step{ID: "s", Name: "S", Type: Decision}
		for i, name := range names {
			step.ConditionalNextSteps = append(step.ConditionalNextSteps, Branch{Expression: name, Step: fmt.Sprint("t", i)})
			value := rapid.SampledFrom([]string{`1`, `1.0`, `1e400`, `9007199254740993`, `"${a}"`, `{"b":1,"a":[null,true]}`, `""`}).Draw(t, "value")
			step.Transformations = append(step.Transformations, Assignment{Variable: name, Value: json.RawMessage(value)})
		}
		want := &Definition{ID: "a", Name: "A", Steps: []Step{step}}
		text, err := json.Marshal(want)
		require.NoError(t, err)
		got, err := Parse(text)
		require.NoError(t, err, "%s", text)
		assert.Equal(t, want, got)

		again := new(Definition)
		require.NoError(t, json.Unmarshal(text, again))
		assert.Equal(t, want, again, "encoding/json reads the same")
	})
}

func FuzzLint(f *testing.F) {
	for _, seed := range []string{chain(3), `{"steps":[{"type":"FOREACH","items":"${`, `{"steps":[{},[],1,null]}`, `{"id":"a","steps":[{"id":"a","type":"PARALLEL_GATEWAY","parallelNextSteps":["a","a"],"joinStep":"a"}]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, faults := Lint([]byte(text))
		for _, fault := range faults {
			require.Positive(t, fault.Line)
			require.Positive(t, fault.Column)
			require.NotEmpty(t, fault.Message)
		}
		if d == nil {
			require.Error(t, Refused(faults))
			return
		}
		if Refused(faults) == nil {
			plan, err := Compile(d)
			require.NoError(t, err)
			_ = plan.Definition().Mermaid()
		}
		_ = d.Mermaid()
	})
}

func FuzzDurations(f *testing.F) {
	for _, seed := range []string{"P1W", "PT1H30M", "P0.5D", "PT1,5S", "P1DT", "PT9223372036854775807S", "P1M"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err == nil {
			require.LessOrEqual(t, d, MaxDuration)
			require.GreaterOrEqual(t, d, 0*d)
		}
	})
}

func BenchmarkLint(b *testing.B) {
	text := []byte(chain(MaxSteps - 1))
	for b.Loop() {
		_, _ = Lint(text)
	}
}
