package lifecycle_test

import (
	"fmt"
	"math/big"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/lifecycle"
)

// The section "Timestamp Handling" of requirement 000, and what its sentence leaves
// open.
func TestRequirement000_TimestampHandling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-05-25T19:40:10.676802-03:00": "2026-05-25T22:40:10.676802Z",
		"2026-05-25T22:40:10.676900Z":      "2026-05-25T22:40:10.6769Z",
		"1747486200":                       "2025-05-17T12:50:00Z",
	} {
		assert.Equal(t, want, parse(t, text), text)
	}
}

// Case H2 of the reliability catalogue: zones, the change of the clocks, seconds and
// milliseconds.
func TestTimestamps(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// Both sides of the hour that is told twice, and the one that does not exist.
		"2026-10-25T02:30:00+02:00[Europe/Paris]": "2026-10-25T00:30:00Z",
		"2026-10-25T02:30:00+01:00[Europe/Paris]": "2026-10-25T01:30:00Z",
		"2026-03-29T02:30:00+01:00":               "2026-03-29T01:30:00Z",
		"2026-11-01T01:30:00-04:00":               "2026-11-01T05:30:00Z",
		"2026-11-01T01:30:00-05:00":               "2026-11-01T06:30:00Z",
		// Offsets as they are written.
		"2026-05-25T22:40:10+05:45":                                    "2026-05-25T16:55:10Z",
		"2026-05-25T22:40:10+0530":                                     "2026-05-25T17:10:10Z",
		"2026-05-25T22:40:10-03":                                       "2026-05-26T01:40:10Z",
		"2026-05-25T22:40:10+00:19:32":                                 "2026-05-25T22:20:38Z",
		"2026-05-25T22:40:10+14:00":                                    "2026-05-25T08:40:10Z",
		"2026-05-25t22:40:10z":                                         "2026-05-25T22:40:10Z",
		"2026-05-25 22:40:10 +02:00":                                   "2026-05-25T20:40:10Z",
		"2026-05-25T22:40:10Z[UTC]":                                    "2026-05-25T22:40:10Z",
		" 2026-05-25T22:40:10Z ":                                       "2026-05-25T22:40:10Z",
		"2026-05-25T22:40Z":                                            "2026-05-25T22:40:00Z",
		"2026-05-25T22:40-03:00":                                       "2026-05-26T01:40:00Z",
		"2026-05-25T22:40:10,5Z":                                       "2026-05-25T22:40:10.5Z",
		"2024-02-29T00:00:00Z":                                         "2024-02-29T00:00:00Z",
		"2016-12-31T23:59:60Z":                                         "2017-01-01T00:00:00Z",
		"1969-12-31T23:59:59.5Z":                                       "1969-12-31T23:59:59.5Z",
		"0001-01-02T00:00:00+23:59":                                    "0001-01-01T00:01:00Z",
		"2026-12-31T23:59:59.9999996Z":                                 "2027-01-01T00:00:00Z",
		"2026-05-25T22:40:10.1234565Z":                                 "2026-05-25T22:40:10.123457Z",
		"2026-05-25T22:40:10.1234564999999999999999Z":                  "2026-05-25T22:40:10.123456Z",
		"2026-05-25T22:40:10.123456789+02:00[America/Argentina/Jujuy]": "2026-05-25T20:40:10.123457Z",
		// Since 1970: the unit follows from the magnitude.
		"0":                       "1970-01-01T00:00:00Z",
		"-1":                      "1969-12-31T23:59:59Z",
		"-0.0000005":              "1970-01-01T00:00:00Z",
		"-0.00000051":             "1969-12-31T23:59:59.999999Z",
		"99999999999":             "5138-11-16T09:46:39Z",
		"100000000000":            "1973-03-03T09:46:40Z",
		"1747486200000":           "2025-05-17T12:50:00Z",
		"1747486200123.5":         "2025-05-17T12:50:00.1235Z",
		"1747486200123456":        "2025-05-17T12:50:00.123456Z",
		"1747486200123456789":     "2025-05-17T12:50:00.123457Z",
		"1747486200.676802039":    "2025-05-17T12:50:00.676802Z",
		"1747486200.6768019":      "2025-05-17T12:50:00.676802Z",
		"1.7474862006768019E9":    "2025-05-17T12:50:00.676802Z",
		"1.747486200e+9":          "2025-05-17T12:50:00Z",
		"17474862000000e-4":       "2025-05-17T12:50:00Z",
		"0001747486200":           "2025-05-17T12:50:00Z",
		"0.0000005":               "1970-01-01T00:00:00.000001Z",
		"1e-40":                   "1970-01-01T00:00:00Z",
		"1747486200.000000000000": "2025-05-17T12:50:00Z",
	} {
		assert.Equal(t, want, parse(t, text), text)
	}
}

func parse(t *testing.T, text string) string {
	t.Helper()
	at, err := lifecycle.ParseTimestamp(text)
	require.NoError(t, err, text)
	assert.Equal(t, time.UTC, at.Location())
	return at.Format(time.RFC3339Nano)
}

func TestTextsThatAreNoTimestamps(t *testing.T) {
	t.Parallel()
	const none, noOffset, years = "neither a time", "no offset", "outside of the years"
	for text, want := range map[string]string{
		"": none, "soon": none, "Z": none, "-": none, ".5": none, "5.": none, "1e": none, "1e+": none, "NaN": none, "0x10": none, "1_000": none,
		"2026-05-25T22:40:10":                         noOffset, // a guess would be silent
		"2026-05-25T22:40:10.5":                       noOffset,
		"2026-05-25T22:40":                            noOffset,
		"2026-05-25":                                  noOffset,
		"2026-05-25T22:40:10[Europe/Paris]":           noOffset,
		"2026-13-25T22:40:10Z":                        none,
		"2026-02-29T22:40:10Z":                        none,
		"2026-00-10T22:40:10Z":                        none,
		"2026-05-25T24:00:00Z":                        none,
		"2026-05-25T22:60:10Z":                        none,
		"2026-05-25T22:40:61Z":                        none,
		"2026-05-25T22:40:10.Z":                       none,
		"2026-05-25T22:40:10Zulu":                     none,
		"2026-05-25T22:40:10+24:00":                   none,
		"2026-05-25T22:40:10+02:60":                   none,
		"2026-05-25T22:40:10+02:":                     none,
		"2026-05-25T22:40:10 ":                        noOffset,
		"2026-5-25T22:40:10Z":                         none,
		"26-05-25T22:40:10Z":                          none,
		"Mon May 25 22:40:10 UTC 2026":                none,
		"0000-05-25T22:40:10Z":                        years,
		"0001-01-01T00:00:00+01:00":                   years,
		"9999-12-31T23:59:59-01:00":                   years,
		"1e30":                                        years,
		"174748620012345678901":                       years,
		fmt.Sprintf("2026-05-25T22:40:10Z[%099d]", 0): none,
	} {
		_, err := lifecycle.ParseTimestamp(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// Whatever form a time is written in, it is the same time.
func TestAllFormsOfATimeAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// From 1973 on, when the magnitudes tell the units apart, to where nanoseconds end.
		micros := rapid.Int64Range(100_000_000_000_000, 9_000_000_000_000_000).Draw(t, "micros")
		want := time.UnixMicro(micros).UTC()
		zone := time.FixedZone("", rapid.IntRange(-18*60, 18*60).Draw(t, "offset")*60)
		seconds := new(big.Rat).SetFrac64(micros, 1_000_000)
		forms := []string{
			want.Format(time.RFC3339Nano),
			want.In(zone).Format(time.RFC3339Nano),
			want.In(zone).Format("2006-01-02T15:04:05.000000-0700"),
			seconds.FloatString(6),
			seconds.FloatString(9),
			strconv.FormatInt(micros, 10),
			strconv.FormatInt(micros, 10) + "000",
			new(big.Rat).SetFrac64(micros, 1000).FloatString(3),
		}
		// What a program makes of it that keeps seconds as a binary fraction. From 2^33 on, in 2242,
		// such a fraction does not tell microseconds apart.
		if micros < 1_000_000<<33 {
			forms = append(forms, strconv.FormatFloat(float64(micros)/1e6, 'g', -1, 64))
		}
		for _, form := range forms {
			got, err := lifecycle.ParseTimestamp(form)
			require.NoError(t, err, form)
			assert.Equal(t, want, got, form)
		}
	})
}

func TestRound(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_499, time.FixedZone("", 3600))
	assert.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 6_000, time.UTC), lifecycle.Round(at))
	assert.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 7_000, time.UTC), lifecycle.Round(at.Add(time.Nanosecond)))
	before := time.Date(1960, 1, 2, 3, 4, 5, 6_500, time.UTC)
	assert.Equal(t, time.Date(1960, 1, 2, 3, 4, 5, 7_000, time.UTC), lifecycle.Round(before))
}

func FuzzParseTimestamp(f *testing.F) {
	for _, seed := range []string{"2026-05-25T19:40:10.676802-03:00", "1747486200", "1.7474862E9", "-1e-7", "2026-05-25T22:40Z[UTC]", "2016-12-31T23:59:60,9+2359"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := lifecycle.ParseTimestamp(text)
		if err != nil {
			assert.Zero(t, at)
			return
		}
		assert.Equal(t, at, lifecycle.Round(at))
		assert.True(t, at.Year() >= 1 && at.Year() <= 9999)
		again, err := lifecycle.ParseTimestamp(at.Format(time.RFC3339Nano))
		require.NoError(t, err)
		assert.Equal(t, at, again)
	})
}
