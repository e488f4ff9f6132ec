package lifecycle

import (
	"strings"
	"time"
)

// isoText is what is left to be read of a time of ISO 8601.
type isoText struct {
	rest string
	bad  bool
}

// number takes n digits and returns their value.
func (t *isoText) number(n int) int {
	if len(t.rest) < n || !isDigits(t.rest[:n]) {
		t.bad = true
		return 0
	}
	value := 0
	for i := range n {
		value = 10*value + int(t.rest[i]-'0')
	}
	t.rest = t.rest[n:]
	return value
}

// one takes one of the characters; it reports whether it was there.
func (t *isoText) one(of string) bool {
	if t.rest == "" || strings.IndexByte(of, t.rest[0]) < 0 {
		return false
	}
	t.rest = t.rest[1:]
	return true
}

func (t *isoText) must(of string) { t.bad = !t.one(of) || t.bad }

// parseISO reads date, time and offset. See ParseTimestamp for what is allowed.
func parseISO(s string) (time.Time, error) {
	t := isoText{rest: s}
	year := t.number(4)
	t.must("-")
	month := t.number(2)
	t.must("-")
	day := t.number(2)
	if t.bad {
		return time.Time{}, errNoTimestamp
	}
	if t.rest == "" {
		return time.Time{}, errNoOffset
	}
	t.must("Tt ")
	hour := t.number(2)
	t.must(":")
	minute := t.number(2)
	second, nanos := 0, 0
	if t.one(":") {
		second = t.number(2)
		nanos = t.fraction()
	}
	if t.bad || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, errNoTimestamp
	}
	offset, err := t.offset()
	if err != nil {
		return time.Time{}, err
	}
	at := time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	if first := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC); int(first.Month()) != month || first.Day() != day {
		return time.Time{}, errNoTimestamp
	}
	return at.Add(-offset), nil
}

// fraction takes a fraction of seconds, of any length, and returns nanoseconds, cut.
func (t *isoText) fraction() int {
	if !t.one(".,") {
		return 0
	}
	digits := 0
	for digits < len(t.rest) && t.rest[digits] >= '0' && t.rest[digits] <= '9' {
		digits++
	}
	if digits == 0 {
		t.bad = true
		return 0
	}
	nanos := 0
	for i := range 9 {
		nanos *= 10
		if i < digits {
			nanos += int(t.rest[i] - '0')
		}
	}
	t.rest = t.rest[digits:]
	return nanos
}

// offset takes what stands behind the time, to the end.
func (t *isoText) offset() (time.Duration, error) {
	t.one(" ")
	if t.rest == "" || t.rest[0] == '[' {
		return 0, errNoOffset
	}
	var offset time.Duration
	if !t.one("Zz") {
		east := t.one("+")
		if !east {
			t.must("-")
		}
		offset = time.Duration(t.number(2)) * time.Hour
		for _, unit := range [...]time.Duration{time.Minute, time.Second} {
			if t.one(":") || len(t.rest) > 0 && t.rest[0] != '[' {
				n := t.number(2)
				t.bad = t.bad || n > 59
				offset += time.Duration(n) * unit
			}
		}
		if offset >= 24*time.Hour {
			t.bad = true
		}
		if !east {
			offset = -offset
		}
	}
	zone := strings.HasPrefix(t.rest, "[") && strings.HasSuffix(t.rest, "]")
	if t.bad || t.rest != "" && !zone {
		return 0, errNoTimestamp
	}
	return offset, nil
}
