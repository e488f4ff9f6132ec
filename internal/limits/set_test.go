package limits_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/expr"
	"github.com/millrace/millrace/internal/limits"
	"github.com/millrace/millrace/topics"
)

func rate() limits.Rate { return limits.Rate{Tokens: 5, Per: time.Minute} }

func request() topics.Request {
	return topics.Request{
		Tenant: "acme", User: "ada", Executor: "process", ResourceClass: "gpu", Priority: 4, ConcurrencyKey: "k1",
		Labels: map[string]string{"team": "blue"}, Origin: topics.Origin{Kind: "kafka", Trigger: "nightly"},
		Requirements: topics.Requirements{Slots: 2, CPUMillis: 1500, MemoryBytes: 1 << 40, GPUs: 1},
	}
}

func compile(t *testing.T, definitions ...limits.Definition) *limits.Set {
	t.Helper()
	set, err := limits.Compile(definitions)
	require.NoError(t, err)
	return set
}

func TestKeysOfARequest(t *testing.T) {
	t.Parallel()
	set := compile(t,
		limits.Definition{Name: "z-user", Per: limits.PerUser, Rate: rate()},
		limits.Definition{Name: "tenant", Per: limits.PerTenant, Concurrency: 3},
		limits.Definition{Name: "team", Per: limits.PerKey, Key: `labels.team`, Rate: rate()},
		limits.Definition{Name: "none", Per: limits.PerKey, Key: `labels.nobody`, Rate: rate()},
		limits.Definition{Name: "nil", Per: limits.PerKey, Key: `nil`, Rate: rate()},
		limits.Definition{Name: "off", Per: limits.PerTenant, When: `resource_class == "default"`, Rate: rate()},
		limits.Definition{Name: "on", Per: limits.PerKey, When: `origin.kind == "kafka" && requirements.gpus > 0`, Key: `origin.trigger`, Rate: rate()},
	)
	keys, err := set.Keys(t.Context(), request())
	require.NoError(t, err)
	assert.Equal(t, []limits.Key{{"on", "nightly"}, {"team", "blue"}, {"tenant", "acme"}, {"z-user", "acme/ada"}}, keys)

	empty := compile(t)
	keys, err = empty.Keys(t.Context(), request())
	require.NoError(t, err)
	assert.Empty(t, keys)
	keys, err = (*limits.Set)(nil).Keys(t.Context(), request())
	require.NoError(t, err)
	assert.Empty(t, keys)
	_, found := (*limits.Set)(nil).Lookup("x")
	assert.False(t, found)
}

func TestEverythingDocumentedIsVisible(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`tenant + user + executor + resource_class + concurrency_key`: "acmeadaprocessgpuk1",
		`priority`:                  "4",
		`labels["team"]`:            "blue",
		`origin.kind`:               "kafka",
		`origin.trigger`:            "nightly",
		`requirements.slots`:        "2",
		`requirements.cpu_millis`:   "1500",
		`requirements.memory_bytes`: "1099511627776",
		`requirements.gpus > 0`:     "true",
		`requirements.gpus / 2`:     "0.5",
		`labels.none ?? "x"`:        "",
	} {
		set := compile(t, limits.Definition{Name: "x", Per: limits.PerKey, Key: source, Rate: rate()})
		keys, err := set.Keys(t.Context(), request())
		require.NoError(t, err, source)
		if want == "" {
			assert.Empty(t, keys, source)
			continue
		}
		assert.Equal(t, []limits.Key{{"x", want}}, keys, source)
	}
}

func TestUsersNeverShareAKey(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, limits.UserKey("a/b", "c"), limits.UserKey("a", "b/c"))
	assert.NotEqual(t, limits.UserKey("a%2Fb", "c"), limits.UserKey("a/b", "c"))
}

func TestWhatARequestCanBeRefusedFor(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`split(user, ",")[9]`:         "index out of range",
		`user == "" ? "x" : "\u0000"`: "not printable",
		`"x" + labels.long`:           "key of 257 bytes, at most 256",
		`user == "" ? "a" : [user]`:   "want a text or a number",
	} {
		set := compile(t, limits.Definition{Name: "x", Per: limits.PerKey, Key: source, Rate: rate()})
		req := request()
		req.Labels["long"] = strings.Repeat("x", 256)
		_, err := set.Keys(t.Context(), req)
		var refused *limits.KeyError
		require.ErrorAs(t, err, &refused, source)
		assert.Equal(t, "x", refused.Limit)
		assert.Equal(t, "key", refused.Field)
		assert.ErrorContains(t, err, want, source)
	}
}

func TestAnExpressionThatCostsTooMuchForTheRequestIsItsFault(t *testing.T) {
	t.Parallel()
	set := compile(t, limits.Definition{
		Name: "x", Per: limits.PerTenant, Rate: rate(),
		When: `all(1..priority * 1000, not any(1..requirements.slots * 1000, # < 0))`,
	})
	_, err := set.Keys(t.Context(), request())
	var refused *limits.KeyError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "when", refused.Field)
	assert.ErrorIs(t, err, expr.ErrBudget)
}

func TestACallerWhoLeavesRefusesNothing(t *testing.T) {
	t.Parallel()
	set := compile(t, limits.Definition{Name: "x", Per: limits.PerKey, Key: `len(filter(1..9, # > 1))`, Rate: rate()})
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := set.Keys(ctx, request())
	require.ErrorIs(t, err, gone)
	var refused *limits.KeyError
	assert.NotErrorAs(t, err, &refused)
}

func TestEveryFaultOfDefinitionsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := limits.Compile([]limits.Definition{
		{Name: "Bad Name", Per: limits.PerUser, Rate: rate()},
		{Name: "a", Per: "group", Key: "user", Rate: rate()},
		{Name: "b", Per: limits.PerKey, Rate: limits.Rate{Tokens: -1, Per: time.Second}},
		{Name: "c", Per: limits.PerKey, Key: "labels.team +", When: "nobody > 3", Concurrency: -1},
		{Name: "d", Per: limits.PerUser, Burst: -1},
		{Name: "e", Per: limits.PerUser, Concurrency: 1, Action: limits.Reject, Burst: 3},
		{Name: "f", Rate: rate(), Action: "drop"},
		{Name: "g", Per: limits.PerKey, Key: "1..1000000", Rate: rate()},
		{Name: "h", Per: limits.PerKey, Key: "labels", Rate: rate()},
		{Name: "i", Per: limits.PerUser, When: "user", Rate: rate()},
		{Name: "j", Per: limits.PerUser, Rate: limits.Rate{Tokens: 1, Per: 24 * time.Hour}, Burst: 400},
		{Name: "k", Per: limits.PerUser, Rate: limits.Rate{Tokens: 1_000_000, Per: time.Millisecond}},
		{Name: "k", Per: limits.PerUser, Rate: limits.Rate{Tokens: 1}},
	})
	var invalid *limits.InvalidError
	require.ErrorAs(t, err, &invalid)
	var got []string
	for _, f := range invalid.Faults {
		got = append(got, f.Limit+"."+f.Field)
	}
	assert.Equal(t, []string{
		"Bad Name.", "a.per", "a.key", "b.key", "b.rate", "c.concurrency", "c.when", "c.key", "d.burst", "d.", "e.burst", "e.action",
		"f.per", "f.action", "g.key", "h.key", "i.when", "j.rate", "k.rate", "k.rate", "k.",
	}, got)
	var syntax *expr.SyntaxError
	require.ErrorAs(t, invalid.Faults[7], &syntax)
	assert.Equal(t, 1, syntax.Line)
}

// Each mistake by itself, with what is said about it.
func TestWhatIsSaidAboutMistakes(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]limits.Definition{
		`limit Big: "Big" is not a name: want lower-case letters, digits, '_' and '-', at most 63`: {Name: "Big", Per: limits.PerUser, Rate: rate()},
		`limit x: per: is required: one of user, tenant, key`:                                      {Rate: rate()},
		`limit x: per: "team" is not one of user, tenant, key`:                                     {Per: "team", Rate: rate()},
		`limit x: key: is required where per is key: the expression whose value is the key`:        {Per: limits.PerKey, Rate: rate()},
		`limit x: key: is only used where per is key`:                                              {Per: limits.PerTenant, Key: "user", Rate: rate()},
		`limit x: limits nothing: set rate or concurrency`:                                         {Per: limits.PerUser},
		`limit x: action: "drop" is not one of queue, reject`:                                      {Per: limits.PerUser, Rate: rate(), Action: "drop"},
		`limit x: action: reject needs a rate: what is over the concurrency always waits`:          {Per: limits.PerUser, Concurrency: 1, Action: limits.Reject},
		`limit x: burst: is only used with a rate`:                                                 {Per: limits.PerUser, Concurrency: 1, Burst: 1},
		`limit x: burst: must be between 0 and 1000000, not -1`:                                    {Per: limits.PerUser, Rate: rate(), Burst: -1},
		`limit x: burst: must be between 0 and 1000000, not 1000001`:                               {Per: limits.PerUser, Rate: limits.Rate{Tokens: 9, Per: time.Second}, Burst: 1_000_001},
		`limit x: concurrency: must be between 0 and 1000000, not -3`:                              {Per: limits.PerUser, Concurrency: -3},
		`limit x: concurrency: must be between 0 and 1000000, not 9223372036854775807`:             {Per: limits.PerUser, Concurrency: math.MaxInt64},
		`limit x: rate: must have between 1 and 1000000 tokens, not -5`:                            {Per: limits.PerUser, Rate: limits.Rate{Tokens: -5, Per: time.Second}},
		`limit x: rate: must have between 1 and 1000000 tokens, not 0`:                             {Per: limits.PerUser, Rate: limits.Rate{Per: time.Second}},
		`limit x: rate: must be per a duration longer than 0`:                                      {Per: limits.PerUser, Rate: limits.Rate{Tokens: 1, Per: -time.Second}},
		`limit x: rate: must be at most 1000000 per second`:                                        {Per: limits.PerUser, Rate: limits.Rate{Tokens: 2, Per: time.Microsecond}},
		`limit x: rate: takes longer than 366 days to fill a bucket of 2`:                          {Per: limits.PerUser, Rate: limits.Rate{Tokens: 1, Per: 300 * 24 * time.Hour}, Burst: 2},
		`limit x: rate: takes longer than 366 days to fill a bucket of 1`:                          {Per: limits.PerUser, Rate: limits.Rate{Tokens: 1, Per: math.MaxInt64}},
		`limit x: key: line 1, column 8: it ends where something is missing`:                       {Per: limits.PerKey, Key: "user ==", Rate: rate()},
		`limit x: key: line 1, column 1: unknown name label`:                                       {Per: limits.PerKey, Key: "label.team", Rate: rate()},
		`limit x: key: line 1, column 1: unknown name now`:                                         {Per: limits.PerKey, Key: "now()", Rate: rate()},
		`limit x: key: gives a map[string]string: want a text or a number`:                         {Per: limits.PerKey, Key: "labels", Rate: rate()},
		`limit x: key: evaluate "len(1..1000000)": the expression costs too much: more than 4096 steps`: {
			Per: limits.PerKey, Key: "len(1..1000000)", Rate: rate(),
		},
		`limit x: key: evaluate "count(1..99, any(1..99, # < 0))": the expression costs too much: more than 4096 steps`: {
			Per: limits.PerKey, Key: "count(1..99, any(1..99, # < 0))", Rate: rate(),
		},
		`limit x: key: the expression has 4097 bytes, at most 4096 are allowed`: {Per: limits.PerKey, Key: strings.Repeat(" ", 4093) + "user", Rate: rate()},
		`limit x: when: expected bool, but got string`:                          {Per: limits.PerUser, When: "user", Rate: rate()},
		`limit x: when: line 1, column 10: invalid operation: > (mismatched types int and string)`: {
			Per: limits.PerUser, When: `priority > "high"`, Rate: rate(),
		},
	} {
		if d.Name == "" {
			d.Name = "x"
		}
		_, err := limits.Compile([]limits.Definition{d})
		assert.EqualError(t, err, want)
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	t.Parallel()
	set := compile(t, limits.Definition{Name: "b", Per: limits.PerUser, Rate: rate()}, limits.Definition{Name: "a", Per: limits.PerTenant, Concurrency: 2})
	got, found := set.Lookup("b")
	require.True(t, found)
	assert.Equal(t, limits.Definition{Name: "b", Per: limits.PerUser, Rate: rate(), Burst: 5, Action: limits.Queue}, got)
	_, found = set.Lookup("c")
	assert.False(t, found)
	all := set.All()
	require.Len(t, all, 2)
	assert.Equal(t, "a", all[0].Name)
	assert.Zero(t, all[0].Burst, "no rate, no bucket")
}

func TestRatesAsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		rate      limits.Rate
		canonical string
	}{
		"":            {limits.Rate{}, ""},
		"100/s":       {limits.Rate{Tokens: 100, Per: time.Second}, "100/s"},
		"5 / m":       {limits.Rate{Tokens: 5, Per: time.Minute}, "5/m"},
		"1000/1h":     {limits.Rate{Tokens: 1000, Per: time.Hour}, "1000/h"},
		"10/30s":      {limits.Rate{Tokens: 10, Per: 30 * time.Second}, "10/30s"},
		"1/7d":        {limits.Rate{Tokens: 1, Per: 7 * 24 * time.Hour}, "1/7d"},
		"2/d":         {limits.Rate{Tokens: 2, Per: 24 * time.Hour}, "2/d"},
		"3/90m":       {limits.Rate{Tokens: 3, Per: 90 * time.Minute}, "3/90m"},
		"3/1.5s":      {limits.Rate{Tokens: 3, Per: 1500 * time.Millisecond}, "3/1500ms"},
		"3/1m0.0001s": {limits.Rate{Tokens: 3, Per: time.Minute + 100*time.Microsecond}, "3/1m0.0001s"},
	} {
		got, err := limits.ParseRate(text)
		require.NoError(t, err, text)
		assert.Equal(t, want.rate, got, text)
		assert.Equal(t, want.canonical, got.String(), text)
		var again limits.Rate
		require.NoError(t, again.UnmarshalText([]byte(got.String())))
		assert.Equal(t, got, again)
	}
	for _, text := range []string{"5", "/s", "x/s", "5/", "5/x", "5/1w", "1.5/s", "5/s/s", "99999999999999999999/s", "1/999999999999d", "1/-d"} {
		_, err := limits.ParseRate(text)
		require.ErrorContains(t, err, "want a rate such as", text)
	}
}

func BenchmarkKeys(b *testing.B) {
	set, err := limits.Compile([]limits.Definition{
		{Name: "user", Per: limits.PerUser, Rate: rate()},
		{Name: "team", Per: limits.PerKey, Key: `labels.team`, When: `priority < 5`, Rate: rate()},
	})
	require.NoError(b, err)
	req := request()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = set.Keys(b.Context(), req)
	}
}
