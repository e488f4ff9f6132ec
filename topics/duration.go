package topics

import (
	"fmt"
	"time"
)

// Duration is a span of time that is written as Go writes it: "1m30s", "250ms".
// It is never negative. Zero means "none" and is left out of JSON where the field
// says omitzero.
type Duration time.Duration

// Std returns d as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the text that the wire carries.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler. A negative duration is an error.
func (d Duration) MarshalText() ([]byte, error) {
	if d < 0 {
		return nil, fmt.Errorf("marshal duration %s: is negative", d)
	}
	return []byte(d.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It refuses what
// time.ParseDuration refuses, and negative durations. The error does not repeat
// the text, which may come from anybody.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("parse duration: want a text such as 1m30s")
	}
	if v < 0 {
		return fmt.Errorf("parse duration: is negative")
	}
	*d = Duration(v)
	return nil
}
