package configs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
)

func TestRulesForRetries(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]configs.RetryRule{
		"from=1m": {From: time.Minute, Max: time.Hour, Attempts: 5},
		"from=2h": {From: 2 * time.Hour, Max: 2 * time.Hour, Attempts: 5},
		"class=handler  consumer=billing topic=t type=a.v1 from=10s max=1d attempts=3 hold_above=100": {
			Topic: "t", Consumer: "billing", Type: "a.v1", Class: "handler", From: 10 * time.Second, Max: 24 * time.Hour, Attempts: 3, HoldAbove: 100},
	} {
		var got, again configs.RetryRule
		require.NoError(t, got.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, got)
		require.NoError(t, again.UnmarshalText([]byte(got.String())))
		assert.Equal(t, got, again)
	}
	for text, want := range map[string]string{
		"": "from", "from": "pairs", "from=": "pairs", "from=x": "cannot be read", "from=1ms": "1s or longer", "from=1m from=1m": "twice",
		"from=1m max=1s": "max", "from=1m attempts=6": "between 1 and 5", "from=1m attempts=0": "between", "from=1m hold_above=-1": "hold_above",
		"from=1m class=shutdown": "message, handler", "from=1m consumr=x": "consumer",
	} {
		var r configs.RetryRule
		require.ErrorContains(t, r.UnmarshalText([]byte(text)), want, text)
	}
}

func TestRulesComeFromFileAndEnvironment(t *testing.T) {
	t.Parallel()
	file := write(t, "millrace.yaml", "dead_letters:\n  topics: [mine-dlq]\n  retry:\n    transient: class=handler from=1m attempts=2\n    billing: consumer=billing from=10s\n")
	c, err := configs.Sources{File: file}.Load()
	require.NoError(t, err)
	assert.Equal(t, 2, c.DeadLetters.Retry["transient"].Attempts)
	assert.Equal(t, "billing", c.DeadLetters.Retry["billing"].Consumer)
	assert.Equal(t, []string{"mine-dlq"}, c.DeadLetters.Topics)
	c, err = configs.Sources{Environ: []string{"MILLRACE_DEAD_LETTERS_RETRY=a=from=1m,b=class=message from=2m"}}.Load()
	require.NoError(t, err)
	assert.Equal(t, "message", c.DeadLetters.Retry["b"].Class)
	_, err = configs.Sources{File: write(t, "millrace.yaml", "dead_letters:\n  retry:\n    x: attempts=9 from=1m\n    Bad name: from=1m\n")}.Load()
	require.ErrorContains(t, err, "between 1 and 5")
	_, err = configs.Sources{File: write(t, "millrace.yaml", "dead_letters:\n  retry:\n    Bad name: from=1m\n  topics: [a, a]\n")}.Load()
	require.ErrorContains(t, err, "is not a name")
	require.ErrorContains(t, err, "twice")
}
