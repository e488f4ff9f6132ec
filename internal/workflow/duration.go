package workflow

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxDuration is the longest duration of a definition: 100 years of 365 days.
const MaxDuration = 100 * 365 * 24 * time.Hour

// ParseDuration parses an ISO 8601 duration: weeks, days, hours, minutes and seconds, such
// as P7D, PT1H30M, P1W or PT0.5S. The last part may have a fraction. Months and years
// have no fixed length and are refused. A day has 24 hours.
func ParseDuration(text string) (time.Duration, error) {
	d, err := duration(text)
	if err != nil {
		return 0, fmt.Errorf("duration %q: %w", text, err)
	}
	return d, nil
}

func duration(text string) (time.Duration, error) {
	rest, ok := strings.CutPrefix(text, "P")
	if !ok {
		if strings.HasPrefix(text, "-") {
			return 0, errors.New("it must not be negative")
		}
		return 0, errors.New("it must begin with P, as in PT30S or P7D")
	}
	days, clock, timed := strings.Cut(rest, "T")
	if timed && clock == "" {
		return 0, errors.New("there is nothing after T")
	}
	if rest == "" {
		return 0, errors.New("there is nothing after P")
	}
	if strings.ContainsAny(days, "YM") {
		return 0, errors.New("years and months have no fixed length: use weeks (P2W) or days (P30D), or PT5M for minutes")
	}
	first, fraction, err := parts(days, "WD", []time.Duration{7 * 24 * time.Hour, 24 * time.Hour})
	if err != nil {
		return 0, err
	}
	if fraction && clock != "" {
		return 0, errors.New("only the last part may have a fraction")
	}
	second, _, err := parts(clock, "HMS", []time.Duration{time.Hour, time.Minute, time.Second})
	if err != nil {
		return 0, err
	}
	if sum := first + second; sum <= MaxDuration {
		return sum, nil
	}
	return 0, errTooLong
}

var errTooLong = errors.New("it is longer than 100 years")

// parts parses numbers that are each followed by a letter out of designators, which come in
// that order. It says whether the last number has a fraction.
func parts(text, designators string, units []time.Duration) (sum time.Duration, fraction bool, err error) {
	for text != "" {
		end := strings.IndexFunc(text, func(c rune) bool { return (c < '0' || c > '9') && c != '.' && c != ',' })
		switch {
		case end < 0:
			return 0, false, fmt.Errorf("%q has no unit", text)
		case end == 0:
			return 0, false, fmt.Errorf("there is no number before %q", text)
		case fraction:
			return 0, false, errors.New("only the last part may have a fraction")
		}
		at := strings.IndexByte(designators, text[end])
		if at < 0 && strings.HasSuffix(designators, "D") && strings.IndexByte("HS", text[end]) >= 0 {
			return 0, false, errors.New("hours, minutes and seconds come after a T, as in PT1H")
		}
		if at < 0 {
			return 0, false, fmt.Errorf("%q is not a unit that may stand there", text[end:])
		}
		number := strings.Replace(text[:end], ",", ".", 1)
		fraction = strings.Contains(number, ".")
		value, err := scale(number, units[at])
		if err != nil {
			return 0, false, err
		}
		if sum += value; sum > MaxDuration {
			return 0, false, errTooLong
		}
		text, designators, units = text[end+1:], designators[at+1:], units[at+1:]
	}
	return sum, fraction, nil
}

// scale multiplies a unit by a decimal number.
func scale(number string, unit time.Duration) (time.Duration, error) {
	if strings.HasPrefix(number, ".") || strings.HasSuffix(number, ".") {
		return 0, fmt.Errorf("%q is not a number", number)
	}
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		if whole > int64(MaxDuration/unit) {
			return 0, errTooLong
		}
		return time.Duration(whole) * unit, nil
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", number)
	}
	if value > float64(MaxDuration)/float64(unit) {
		return 0, errTooLong
	}
	return time.Duration(value * float64(unit)), nil
}
