package workflow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"PT30S": 30 * time.Second, "PT24H": day, "P7D": 7 * day, "P2W": 14 * day, "PT1H30M": 90 * time.Minute,
		"P1W2DT3H4M5S": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second, "PT0.5S": 500 * time.Millisecond, "PT1,25S": 1250 * time.Millisecond,
		"P0.5D": 12 * time.Hour, "PT0S": 0, "PT90M": 90 * time.Minute, "P36500D": MaxDuration,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"": "must begin with P", "5m": "must begin with P", "pt5m": "must begin with P", "-PT1H": "negative", "P": "nothing after P", "PT": "nothing after T", "P1DT": "nothing after T",
		"P1Y": "no fixed length", "P1M": "PT5M for minutes", "PT1": `"1" has no unit`, "PTS": "no number", "PT1M1H": `"H" is not a unit`, "PT1M1M": "is not a unit", "P1H": "after a T",
		"PT0.5H1M": "only the last part", "P0.5DT1H": "only the last part", "PT.5S": "not a number", "PT5.S": "not a number", "PT1.2.3S": "not a number", "PT1,2,3S": "not a number",
		"PT99999999999999999999S": "longer than 100 years", "P36500DT1S": "longer than 100 years", "P9999999W": "longer than 100 years", "PT1S ": "no number", "PT1 S": "is not a unit", "PT0x1S": "is not a unit",
	} {
		_, err := ParseDuration(text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}
