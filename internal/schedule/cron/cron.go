package cron

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones are known where the machine has no files of them

	lib "github.com/netresearch/go-cron"
)

// MaxLength is how long an expression may be.
const MaxLength = 256

// The parts of a schedule that an Error may be about.
const (
	PartExpression = "cron"
	PartZone       = "time_zone"
)

// Error says what is wrong with an expression or a zone.
type Error struct {
	// Part is PartExpression or PartZone.
	Part string
	// Message says it in words.
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Part + ": " + e.Message }

// Expression is an expression in a time zone. It is safe for concurrent use.
type Expression struct {
	text string
	zone *time.Location
	// wall tells times of a clock that is never set, as if they were UTC. Nil with every.
	wall *lib.SpecSchedule
	// every is the distance of "@every".
	every time.Duration
	// hourly: every hour is named, so that the time that passes counts.
	hourly bool
}

// allHours are the bits of 0 to 23.
const allHours = 1<<24 - 1

// searchYears is how far a time is looked for: 29 February may be eight years away.
const searchYears = 12

// parser returns the parser of expressions.
func parser() lib.Parser {
	return lib.MustNewParser(lib.SecondOptional | lib.Minute | lib.Hour | lib.Dom | lib.Month | lib.Dow |
		lib.Descriptor | lib.Extended | lib.DowOrDom).WithMaxSearchYears(searchYears)
}

// Parse reads an expression. An empty zone is UTC. The error is an *Error, about the zone if
// both are wrong.
func Parse(text, zone string) (*Expression, error) {
	location, err := LoadZone(zone)
	if err != nil {
		return nil, err
	}
	e := &Expression{text: strings.TrimSpace(text), zone: location}
	canonical, err := canonical(e.text)
	if err != nil {
		return nil, err
	}
	parsed, err := parser().Parse(canonical)
	if err != nil {
		return nil, &Error{PartExpression, explain(canonical, err)}
	}
	switch s := parsed.(type) {
	case *lib.SpecSchedule:
		s.Location = time.UTC // a clock that is never set
		e.wall, e.hourly = s, s.Hour&allHours == allHours
	case lib.ConstantDelaySchedule:
		e.every = s.Delay
	default:
		return nil, &Error{PartExpression, fmt.Sprintf("%q is not supported", text)}
	}
	return e, nil
}

// LoadZone returns the zone of a name of the IANA database; UTC where the name is empty. The
// error is an *Error.
func LoadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if strings.EqualFold(name, "local") {
		return nil, &Error{PartZone, `"Local" is another zone on every machine; name one, such as Europe/Berlin`}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, &Error{PartZone, fmt.Sprintf("%q is not a name of the IANA time zone database, such as Europe/Berlin or UTC", name)}
	}
	return zone, nil
}

// canonical brings an expression into the form in which the library reads all that we
// promise: it takes the H in "THU" for something else, and does not know "friL".
func canonical(text string) (string, error) {
	switch {
	case text == "":
		return "", &Error{PartExpression, "is empty; five fields such as \"0 9 * * mon-fri\", or @daily"}
	case len(text) > MaxLength:
		return "", &Error{PartExpression, fmt.Sprintf("is longer than %d characters", MaxLength)}
	case strings.Contains(text, "="):
		return "", &Error{PartExpression, "cannot name a time zone; that is what time_zone is for"}
	}
	text = strings.ToLower(text)
	if strings.HasPrefix(text, "@") {
		return text, nil
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return text, nil
	}
	days := strings.Split(fields[len(fields)-1], ",")
	for i, day := range days {
		if head, last := strings.CutSuffix(day, "l"); last && head != "" && !strings.HasSuffix(head, "#") {
			days[i] = head + "#l"
		}
	}
	fields[len(fields)-1] = strings.Join(days, ",")
	return strings.Join(fields, " "), nil
}

// explain says what is wrong with an expression, and in which field.
func explain(text string, err error) string {
	if strings.HasPrefix(text, "@") {
		return fmt.Sprintf("%q is not one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually and @every with a duration of 1s or more", text)
	}
	names := []string{"second", "minute", "hour", "day of month", "month", "day of week"}
	fields := strings.Fields(text)
	switch len(fields) {
	case 5:
		names = names[1:]
	case 6:
	default:
		return fmt.Sprintf("has %d fields; want 5 (minute, hour, day of month, month, day of week) or 6 with seconds first", len(fields))
	}
	for i, field := range fields {
		alone := strings.Fields(strings.Repeat("* ", len(fields)))
		alone[i] = field
		if _, err := parser().Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("%s %q: %v", names[i], field, err)
		}
	}
	return err.Error()
}

// String returns the expression as it was written.
func (e *Expression) String() string { return e.text }

// Zone returns the time zone.
func (e *Expression) Zone() *time.Location { return e.zone }

// Next returns the first time after a given one, in the zone of the expression; the zero
// time when there is none within twelve years.
func (e *Expression) Next(after time.Time) time.Time {
	if e.every > 0 {
		past := after.UnixNano() / int64(e.every)
		return time.Unix(0, (past+1)*int64(e.every)).In(e.zone)
	}
	// The zone's time falls into segments, in each of which its clock runs evenly.
	at := newSegment(after.In(e.zone))
	from := at.wall(after)
	for {
		if !e.hourly && from.Before(at.fresh) {
			from = justBefore(at.fresh) // what comes before was shown already
		}
		found := e.wall.Next(from)
		if found.IsZero() {
			return time.Time{}
		}
		if t := at.instant(found); at.end.IsZero() || t.Before(at.end) {
			return t.In(e.zone)
		}
		next := newSegment(at.end)
		if skipped := next.wall(at.end); !e.hourly && skipped.After(at.wall(at.end)) {
			if e.wall.Next(justBefore(at.wall(at.end))).Before(skipped) {
				return at.end
			}
		}
		from, at = justBefore(next.wall(at.end)), next
	}
}

// justBefore makes a search, which looks behind a time, find the time itself.
func justBefore(t time.Time) time.Time { return t.Add(-1) }

// segment is a time in which the clock of a zone is not set.
type segment struct {
	offset time.Duration
	// end is when the clock is set the next time; zero: never.
	end time.Time
	// fresh is the time of the clock from which on it shows what it has not shown before.
	fresh time.Time
}

func newSegment(t time.Time) segment {
	start, end := t.ZoneBounds()
	s := segment{offset: offsetOf(t), end: end}
	if !start.IsZero() {
		s.fresh = start.UTC().Add(max(s.offset, offsetOf(start.Add(-1))))
	}
	return s
}

func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// wall returns what the clock shows at an instant, as if it were UTC.
func (s segment) wall(t time.Time) time.Time { return t.UTC().Add(s.offset) }

// instant is the inverse of wall.
func (s segment) instant(t time.Time) time.Time { return t.Add(-s.offset) }
