package configs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. It is written with a unit, as in 8MiB.
type Size int64

// The units of a Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

// unit is a suffix of sizes. Decimal units are accepted, never written.
type unit struct {
	suffix string
	bytes  Size
}

// sizeUnits lists longer suffixes before those that end them.
func sizeUnits() []unit {
	return []unit{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1}, {"", 1}}
}

// ParseSize reads a size such as 1MiB, 512 KiB or 1000.
func ParseSize(text string) (Size, error) {
	for _, u := range sizeUnits() {
		digits, ok := strings.CutSuffix(strings.TrimSpace(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/int64(u.bytes) {
			break
		}
		return Size(n) * u.bytes, nil
	}
	return 0, fmt.Errorf("want a size such as 1MiB, not %q", text)
}

// String returns the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits()[:3] {
		if s >= u.bytes && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s/u.bytes), u.suffix)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	v, err := ParseSize(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// Cores is an amount of processor time in thousandths of a core. It is written in
// cores, as in 4 or 1.5, or in thousandths, as in 500m.
type Cores int64

// ParseCores reads an amount such as 4, 1.5 or 500m.
func ParseCores(text string) (Cores, error) {
	trimmed := strings.TrimSpace(text)
	if digits, ok := strings.CutSuffix(trimmed, "m"); ok {
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 {
			return Cores(n), nil
		}
	} else if n, err := strconv.ParseFloat(trimmed, 64); err == nil && n >= 0 && n <= maxCores {
		return Cores(math.Round(n * 1000)), nil
	}
	return 0, fmt.Errorf("want a number of cores such as 4, 1.5 or 500m, not %q", text)
}

// maxCores is a bound against slips, and keeps the arithmetic exact.
const maxCores = 1_000_000

// String returns whole cores as such and anything else in thousandths.
func (c Cores) String() string {
	if c%1000 == 0 {
		return strconv.FormatInt(int64(c/1000), 10)
	}
	return strconv.FormatInt(int64(c), 10) + "m"
}

// MarshalText implements encoding.TextMarshaler.
func (c Cores) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Cores) UnmarshalText(text []byte) error {
	v, err := ParseCores(string(text))
	if err == nil {
		*c = v
	}
	return err
}

const day = 24 * time.Hour

// parseDuration reads what time.ParseDuration reads, and whole days: 90d.
func parseDuration(text string) (time.Duration, error) {
	if digits, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err == nil && n <= math.MaxInt64/int64(day) && n >= math.MinInt64/int64(day) {
			return time.Duration(n) * day, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("want a duration such as 1m30s or 90d, not %q", text)
	}
	return d, nil
}

// formatDuration writes a duration without its zero parts: 1m, not 1m0s.
func formatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
