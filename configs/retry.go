package configs

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RetryRule says which dead letters are redriven by themselves, and when. As text
// it is what must match and how to go about it: "class=handler consumer=billing
// from=1m max=1h attempts=3 hold_above=100".
type RetryRule struct {
	// Topic (by its name at the broker), Consumer, Type and Class must be those of
	// the letter. Empty ones match all.
	Topic, Consumer, Type, Class string
	// From is the wait before the first redrive. It doubles with each that fails,
	// up to Max, which defaults to 1h.
	From, Max time.Duration
	// Attempts is after how many redrives the letter is left alone: 1 to 5, which is
	// the default.
	Attempts int
	// HoldAbove holds redrives of letters with one fingerprint while more than so many
	// are OPEN. 0, the default, is never.
	HoldAbove int
}

const (
	retryMaxDefault      = time.Hour
	retryAttemptsDefault = 5
	// retryAttemptsMost is how often an event is redriven without force.
	retryAttemptsMost = 5
)

// UnmarshalText reads a rule.
func (r *RetryRule) UnmarshalText(text []byte) error {
	rule := RetryRule{Max: retryMaxDefault, Attempts: retryAttemptsDefault}
	texts := map[string]*string{"topic": &rule.Topic, "consumer": &rule.Consumer, "type": &rule.Type, "class": &rule.Class}
	durations := map[string]*time.Duration{"from": &rule.From, "max": &rule.Max}
	numbers := map[string]*int{"attempts": &rule.Attempts, "hold_above": &rule.HoldAbove}
	seen := make(map[string]bool)
	for _, part := range strings.Fields(string(text)) {
		key, value, ok := strings.Cut(part, "=")
		var err error
		switch {
		case !ok || value == "":
			return fmt.Errorf("want pairs such as class=handler from=1m, not %q", part)
		case seen[key]:
			return fmt.Errorf("%s is given twice", key)
		case texts[key] != nil:
			*texts[key] = value
		case durations[key] != nil:
			*durations[key], err = parseDuration(value)
		case numbers[key] != nil:
			*numbers[key], err = strconv.Atoi(value)
		default:
			known := slices.Concat(slices.Sorted(maps.Keys(texts)), slices.Sorted(maps.Keys(durations)), slices.Sorted(maps.Keys(numbers)))
			return fmt.Errorf("%q is not one of %s%s", key, strings.Join(known, ", "), suggestion(key, known))
		}
		if err != nil {
			return fmt.Errorf("%s: %q cannot be read", key, value)
		}
		seen[key] = true
	}
	if !seen["max"] {
		rule.Max = max(rule.Max, rule.From)
	}
	*r = rule
	return rule.check()
}

func (r RetryRule) check() error {
	switch {
	case r.Class != "" && r.Class != "message" && r.Class != "handler":
		return fmt.Errorf("class: %q is not one of message, handler", r.Class)
	case r.From < time.Second:
		return errors.New("from: say how long to wait before the first redrive, 1s or longer")
	case r.Max < r.From:
		return fmt.Errorf("max: must be from (%s) or longer, not %s", formatDuration(r.From), formatDuration(r.Max))
	case r.Attempts < 1 || r.Attempts > retryAttemptsMost:
		return fmt.Errorf("attempts: must be between 1 and %d, not %d", retryAttemptsMost, r.Attempts)
	case r.HoldAbove < 0:
		return fmt.Errorf("hold_above: must be 0 or more, not %d", r.HoldAbove)
	}
	return nil
}

// MarshalText writes the rule as UnmarshalText reads it.
func (r RetryRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String writes the rule without what is empty.
func (r RetryRule) String() string {
	var parts []string
	for _, p := range [][2]string{{"topic", r.Topic}, {"consumer", r.Consumer}, {"type", r.Type}, {"class", r.Class}} {
		if p[1] != "" {
			parts = append(parts, p[0]+"="+p[1])
		}
	}
	parts = append(parts, "from="+formatDuration(r.From), "max="+formatDuration(r.Max), "attempts="+strconv.Itoa(r.Attempts))
	if r.HoldAbove > 0 {
		parts = append(parts, "hold_above="+strconv.Itoa(r.HoldAbove))
	}
	return strings.Join(parts, " ")
}

var ruleName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (v *validation) deadLetters() {
	for _, name := range slices.Sorted(maps.Keys(v.c.DeadLetters.Retry)) {
		if !ruleName.MatchString(name) {
			v.fault("dead_letters.retry", "%q is not a name: want lower-case letters, digits, '_' and '-'", name)
		}
		if err := v.c.DeadLetters.Retry[name].check(); err != nil {
			v.fault("dead_letters.retry", "%s: %s", name, err)
		}
	}
	seen := make(map[string]bool)
	for _, topic := range v.c.DeadLetters.Topics {
		if seen[topic] || topic == "" {
			v.fault("dead_letters.topics", "names %q twice, or nothing", topic)
		}
		seen[topic] = true
	}
}
