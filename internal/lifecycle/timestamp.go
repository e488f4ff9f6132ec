package lifecycle

import (
	"errors"
	"strings"
	"time"
)

// Errors of ParseTimestamp. They repeat nothing of what was read.
var (
	errNoTimestamp = errors.New("is neither a time of ISO 8601 nor seconds since 1970")
	errNoOffset    = errors.New("has no offset from UTC, so it could be any of 26 hours")
	errYear        = errors.New("lies outside of the years 1 to 9999")
)

// maxTimestamp bounds the text of a timestamp, in bytes.
const maxTimestamp = 96

// ParseTimestamp reads a time as engines write it and returns it in UTC, rounded to
// microseconds (see Round).
//
//   - ISO 8601 with date, time and offset: 2026-05-25T19:40:10.676802-03:00, also with Z,
//     with an offset of hours or with seconds, without colon in it, without seconds of the
//     time (as Java leaves them out when they are zero), with a comma or a blank, in
//     lower case, and with the name of a time zone in brackets behind the offset, which
//     decides. A leap second is the first second of the next minute.
//   - Digits, with a fraction or an exponent or not, are the time since 1970: in seconds
//     below 10^11 (the year 5138), in milliseconds below 10^14, in microseconds below
//     10^17, in nanoseconds below 10^20.
//
// A time without an offset is refused: UTC would be a guess, and a wrong one shifts a
// whole history unnoticed.
func ParseTimestamp(s string) (time.Time, error) {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > maxTimestamp {
		return time.Time{}, errNoTimestamp
	}
	t, err := parseEpoch(s)
	if errors.Is(err, errNoTimestamp) {
		t, err = parseISO(s)
	}
	if err != nil {
		return time.Time{}, err
	}
	t = Round(t)
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}, errYear
	}
	return t, nil
}

// Round returns t in UTC, rounded to the nearest microsecond, a half upwards: what
// PostgreSQL holds, and what a time keeps of itself when a binary fraction of seconds
// carried it.
func Round(t time.Time) time.Time {
	return t.UTC().Add(500 * time.Nanosecond).Truncate(time.Microsecond)
}

// parseEpoch reads a decimal number, exactly: the fraction of a binary one would not
// hold the microseconds of this century.
func parseEpoch(s string) (time.Time, error) {
	n, ok := readDecimal(s)
	if !ok {
		return time.Time{}, errNoTimestamp
	}
	// How many digits stand before the point tells the unit, and so how many digits of
	// the number are whole microseconds.
	var unit int
	switch whole := n.point; {
	case whole <= 11:
		unit = 6
	case whole <= 14:
		unit = 3
	case whole <= 17:
		unit = 0
	case whole <= 20:
		unit = -3
	default:
		return time.Time{}, errYear
	}
	micros := n.rounded(n.point + unit)
	return time.UnixMicro(micros), nil
}

// decimal is a number as its digits, without zeros in front, and where the point is:
// behind that many digits, which may be more than there are, or less than none.
type decimal struct {
	digits   []byte
	point    int
	negative bool
}

// maxExponent bounds exponents: beyond it nothing is a time.
const maxExponent = 40

func readDecimal(s string) (n decimal, ok bool) {
	s, n.negative = strings.CutPrefix(s, "-")
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(s), "e")
	whole, fraction, pointed := strings.Cut(mantissa, ".")
	if !isDigits(whole) || pointed && !isDigits(fraction) {
		return decimal{}, false
	}
	n.point = len(whole)
	if scientific {
		exponent, down := strings.CutPrefix(exponent, "-")
		exponent = strings.TrimPrefix(exponent, "+")
		if !isDigits(exponent) {
			return decimal{}, false
		}
		by := 0
		for _, c := range []byte(exponent) {
			by = min(10*by+int(c-'0'), maxExponent)
		}
		if down {
			by = -by
		}
		n.point += by
	}
	n.digits = append([]byte(whole), fraction...)
	for len(n.digits) > 0 && n.digits[0] == '0' {
		n.digits = n.digits[1:]
		n.point--
	}
	if len(n.digits) == 0 {
		n.point = 0
	}
	return n, true
}

// rounded returns the integer of the first count digits, a half rounded upwards. The
// count is at most 17.
func (n decimal) rounded(count int) int64 {
	var value int64
	for i := range max(count, 0) {
		value *= 10
		if i < len(n.digits) {
			value += int64(n.digits[i] - '0')
		}
	}
	up := false
	if count >= 0 && count < len(n.digits) {
		rest := n.digits[count:]
		up = rest[0] >= '5'
		if n.negative && rest[0] == '5' && strings.Trim(string(rest[1:]), "0") == "" {
			up = false // half a microsecond before: upwards is towards zero
		}
	}
	if up {
		value++
	}
	if n.negative {
		return -value
	}
	return value
}

func isDigits(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
