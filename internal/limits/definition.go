package limits

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What a limit counts by: Definition.Per.
const (
	PerUser   = "user"
	PerTenant = "tenant"
	PerKey    = "key"
)

// Action is what happens to an execution that the rate of a limit does not let
// through now.
type Action string

// The actions.
const (
	// Queue lets it wait in the admission queue until there is a token. It is the
	// default.
	Queue Action = "queue"
	// Reject refuses it, with the time after which to ask again. Only the rate
	// rejects: what is over the concurrency of a limit always waits.
	Reject Action = "reject"
)

// Definition is a limit as it is configured.
type Definition struct {
	// Name is unique in a set.
	Name string `json:"name"`
	// Per is what the limit counts by: PerUser, PerTenant or PerKey.
	Per string `json:"per"`
	// Key is the expression whose value is the key, for PerKey.
	Key string `json:"key,omitempty"`
	// When is an expression that says which requests the limit is for. Empty is all.
	When string `json:"when,omitempty"`
	// Rate is how fast the bucket fills. Zero is no limit of rate.
	Rate Rate `json:"rate,omitzero"`
	// Burst is how many tokens the bucket holds. The default is the tokens of the
	// rate.
	Burst int `json:"burst,omitempty"`
	// Concurrency is how many executions with one key may be scheduled or running
	// at once. 0 is any number.
	Concurrency int `json:"concurrency,omitempty"`
	// Action is what happens to an execution for which there is no token.
	Action Action `json:"action"`
}

// The bounds of a definition.
const (
	// MaxNameBytes is how long a name may be.
	MaxNameBytes = 63
	// MaxTokens bounds the tokens of a rate, the burst and the concurrency.
	MaxTokens = 1_000_000
	// MaxTokensPerSecond bounds a rate. The emission interval is whole nanoseconds:
	// a rate above this would be rounded by more than a thousandth, and is no limit.
	MaxTokensPerSecond = 1_000_000
	// MaxFill is the longest time for an empty bucket to become full.
	MaxFill = 366 * 24 * time.Hour
)

// Rate is a number of tokens per duration. It is written as 100/s, 5/1m or
// 1000/12h; the units are those of Go's durations and d for days.
type Rate struct {
	Tokens int
	Per    time.Duration
}

// IsZero says that there is no rate.
func (r Rate) IsZero() bool { return r == Rate{} }

// Interval is the time for one token, in whole nanoseconds, rounded up. It is 0
// where there is no rate.
func (r Rate) Interval() time.Duration {
	if r.Tokens <= 0 || r.Per <= 0 {
		return 0
	}
	n := time.Duration(r.Tokens)
	interval := r.Per / n
	if r.Per%n != 0 {
		interval++
	}
	return interval
}

const day = 24 * time.Hour

// ParseRate reads a rate. An empty text is no rate.
func ParseRate(text string) (Rate, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Rate{}, nil
	}
	count, per, found := strings.Cut(text, "/")
	tokens, err := strconv.Atoi(strings.TrimSpace(count))
	if err != nil || !found {
		return Rate{}, fmt.Errorf("want a rate such as 100/s or 5/1m, not %q", text)
	}
	duration, err := parsePeriod(strings.TrimSpace(per))
	if err != nil {
		return Rate{}, fmt.Errorf("want a rate such as 100/s or 5/1m, not %q", text)
	}
	return Rate{Tokens: tokens, Per: duration}, nil
}

// parsePeriod reads a duration whose number may be left out when it is 1.
func parsePeriod(text string) (time.Duration, error) {
	if text != "" && (text[0] < '0' || text[0] > '9') && text[0] != '-' && text[0] != '+' && text[0] != '.' {
		text = "1" + text
	}
	if digits, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/int64(day) {
			return 0, fmt.Errorf("want a number of days, not %q", text)
		}
		return time.Duration(n) * day, nil
	}
	return time.ParseDuration(text)
}

// String writes the rate as ParseRate reads it, "" for none.
func (r Rate) String() string {
	if r.IsZero() {
		return ""
	}
	return strconv.Itoa(r.Tokens) + "/" + r.period()
}

func (r Rate) period() string {
	for _, unit := range []struct {
		text string
		long time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		switch {
		case r.Per == unit.long:
			return unit.text
		case r.Per > unit.long && r.Per%unit.long == 0:
			return strconv.FormatInt(int64(r.Per/unit.long), 10) + unit.text
		}
	}
	return r.Per.String()
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) error {
	rate, err := ParseRate(string(text))
	if err == nil {
		*r = rate
	}
	return err
}

// String says the limit in a line: what it counts by, for which requests, and how much
// it lets through.
func (d Definition) String() string {
	words := []string{"per " + d.Per}
	if d.Key != "" {
		words[0] += " (" + d.Key + ")"
	}
	if d.When != "" {
		words = append(words, "when ("+d.When+")")
	}
	if !d.Rate.IsZero() {
		words = append(words, fmt.Sprintf("rate %s burst %d", d.Rate, d.burst()), string(d.Action))
	}
	if d.Concurrency > 0 {
		words = append(words, fmt.Sprintf("concurrency %d", d.Concurrency))
	}
	return strings.Join(words, ", ")
}

// withDefaults returns the definition with what was left out filled in.
func (d Definition) withDefaults() Definition {
	if d.Action == "" {
		d.Action = Queue
	}
	d.Burst = d.burst()
	return d
}

// burst is what the bucket holds, 0 where there is none.
func (d Definition) burst() int {
	if d.Burst != 0 || d.Rate.IsZero() {
		return d.Burst
	}
	return max(d.Rate.Tokens, 1)
}

var nameFormat = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// check reports what is wrong with the definition apart from its expressions.
func (d Definition) check(fault func(field, format string, args ...any)) {
	if len(d.Name) > MaxNameBytes || !nameFormat.MatchString(d.Name) {
		fault("", "%q is not a name: want lower-case letters, digits, '_' and '-', at most %d", d.Name, MaxNameBytes)
	}
	switch d.Per {
	case PerUser, PerTenant, PerKey:
	case "":
		fault("per", "is required: one of user, tenant, key")
	default:
		fault("per", "%q is not one of user, tenant, key", d.Per)
	}
	if d.Per == PerKey && d.Key == "" {
		fault("key", "is required where per is key: the expression whose value is the key")
	}
	if d.Per != PerKey && d.Key != "" {
		fault("key", "is only used where per is key")
	}
	if err := d.checkRate(); err != nil {
		fault("rate", "%w", err)
	}
	switch {
	case d.Burst < 0 || d.Burst > MaxTokens:
		fault("burst", "must be between 0 and %d, not %d", MaxTokens, d.Burst)
	case d.Burst > 0 && d.Rate.IsZero():
		fault("burst", "is only used with a rate")
	}
	if d.Concurrency < 0 || d.Concurrency > MaxTokens {
		fault("concurrency", "must be between 0 and %d, not %d", MaxTokens, d.Concurrency)
	}
	switch {
	case d.Action != Queue && d.Action != Reject && d.Action != "":
		fault("action", "%q is not one of queue, reject", d.Action)
	case d.Action == Reject && d.Rate.IsZero():
		fault("action", "reject needs a rate: what is over the concurrency always waits")
	}
	if d.Rate.IsZero() && d.Concurrency == 0 {
		fault("", "limits nothing: set rate or concurrency")
	}
}

func (d Definition) checkRate() error {
	r := d.Rate
	switch {
	case r.IsZero():
		return nil
	case r.Tokens < 1 || r.Tokens > MaxTokens:
		return fmt.Errorf("must have between 1 and %d tokens, not %d", MaxTokens, r.Tokens)
	case r.Per <= 0:
		return errors.New("must be per a duration longer than 0")
	case r.Interval() < time.Second/MaxTokensPerSecond:
		return fmt.Errorf("must be at most %d per second", MaxTokensPerSecond)
	case r.Interval() > MaxFill/time.Duration(max(d.burst(), 1)):
		return fmt.Errorf("takes longer than %d days to fill a bucket of %d", MaxFill/day, d.burst())
	}
	return nil
}
