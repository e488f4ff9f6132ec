package trigger

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/topics"
)

// The defaults of what a definition leaves out.
const (
	DefaultMembers          = 1
	DefaultAlertAfter       = time.Hour
	DefaultPrefetchCount    = 10
	DefaultPrefetchBytes    = 102_400
	DefaultMaxBytesPerFetch = 1_048_576
	DefaultBatch            = 100
	DefaultMissedMax        = 100
	DefaultMissedAfter      = time.Minute
	DefaultGroupPrefix      = "millrace-trigger-"
	DefaultTimeZone         = "UTC"
)

// Defaults are what the installation says of triggers that do not say it themselves. The
// zero value leaves the defaults of this package.
type Defaults struct {
	// AlertAfter is how long a trigger may stand before an alert. Default: 1 h.
	AlertAfter time.Duration
	// Brokers are those of the installation, for Kafka triggers that name none. Where there
	// are none, such a trigger is refused.
	Brokers []string
	// Secrets says what definitions may refer to.
	Secrets Secrets
	// OwnTopics are the installation's own topics, by their names at its brokers: a trigger
	// that reads one of them is warned of.
	OwnTopics []string
}

// Secrets says which secrets definitions may refer to.
type Secrets struct {
	// EnvPrefix begins the names of the environment variables that may be named. Empty: none
	// may be.
	EnvPrefix string
	// Dir is the folder below which files may be named. Empty: none may be.
	Dir string
	// Unknown: it is not known what may be named, because there is no server to ask.
	Unknown bool
}

// Sources of settings.
const (
	FromDefinition   = "definition"
	FromDefault      = "default"
	FromInstallation = "installation"
)

// settings gathers values with where they come from.
type settings []Setting

// use sets *field to what stands in for it if nothing was said, and notes the setting.
func use[T comparable](s *settings, name string, field *T, otherwise T, source string) {
	var zero T
	if *field != zero {
		source = FromDefinition
	} else {
		*field = otherwise
	}
	*s = append(*s, Setting{Name: name, Value: *field, Source: source})
}

// note notes a value that defaults were filled into before. One that is nothing even so is
// not worth a line.
func note[T comparable](s *settings, name string, written, used T) {
	var zero T
	switch {
	case used == zero:
	case written == used:
		*s = append(*s, Setting{Name: name, Value: used, Source: FromDefinition})
	default:
		*s = append(*s, Setting{Name: name, Value: used, Source: FromDefault})
	}
}

// withDefaults returns the definition with what was left out filled in, and the settings.
// What it changes is not shared with d.
func (d Definition) withDefaults(installed Defaults) (Definition, []Setting) {
	var s settings
	if d.Type == "" {
		d.Type = d.onlyType()
	}
	d.Enabled = new(d.IsEnabled())
	use(&s, "limit_action", &d.LimitAction, LimitQueue, FromDefault)
	if d.Type == TypeKafka {
		use(&s, "on_poison", &d.OnPoison, PoisonDeadLetter, FromDefault)
	}
	if d.Type != TypeWebhook {
		use(&s, "members", &d.Members, DefaultMembers, FromDefault)
	}
	source := FromDefault
	if installed.AlertAfter > 0 {
		source = FromInstallation
	}
	use(&s, "alert_after", &d.AlertAfter, topics.Duration(cmp.Or(installed.AlertAfter, DefaultAlertAfter)), source)
	if d.Kafka != nil {
		d.Kafka = new(d.Kafka.withDefaults(d.ID, installed, &s))
	}
	if d.Webhook != nil {
		d.Webhook = new(d.Webhook.withSettings(&s))
	}
	if d.Schedule != nil {
		d.Schedule = new(d.Schedule.withDefaults(&s))
	}
	return d, s
}

// IsEnabled says whether the trigger is on, which is so unless it says otherwise.
func (d Definition) IsEnabled() bool { return d.Enabled == nil || *d.Enabled }

// onlyType is the type of the one source that there is; empty where there are none, or
// several.
func (d Definition) onlyType() Type {
	var found []Type
	if d.Kafka != nil {
		found = append(found, TypeKafka)
	}
	if d.Webhook != nil {
		found = append(found, TypeWebhook)
	}
	if d.Schedule != nil {
		found = append(found, TypeSchedule)
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

func (k Kafka) withDefaults(id string, installed Defaults, s *settings) Kafka {
	source := FromDefinition
	if len(k.Brokers) == 0 {
		source = FromInstallation
	}
	brokers := k.Brokers
	if len(brokers) == 0 {
		brokers = installed.Brokers
	}
	*s = append(*s, Setting{Name: "kafka.brokers", Value: brokers, Source: source})
	use(s, "kafka.group", &k.Group, DefaultGroupPrefix+id, FromDefault)
	use(s, "kafka.from", &k.From, FromEarliest, FromDefault)
	use(s, "kafka.prefetch_count", &k.PrefetchCount, DefaultPrefetchCount, FromDefault)
	use(s, "kafka.prefetch_bytes", &k.PrefetchBytes, DefaultPrefetchBytes, FromDefault)
	use(s, "kafka.max_bytes_per_fetch", &k.MaxBytesPerFetch, DefaultMaxBytesPerFetch, FromDefault)
	use(s, "kafka.rate_limit_per_second", &k.RateLimitPerSecond, 0, FromDefault)
	use(s, "kafka.batch", &k.Batch, DefaultBatch, FromDefault)
	return k
}

func (w Webhook) withSettings(s *settings) Webhook {
	full := w.WithDefaults()
	note(s, "webhook.max_body_bytes", w.MaxBodyBytes, full.MaxBodyBytes)
	note(s, "webhook.idempotency_header", w.IdempotencyHeader, full.IdempotencyHeader)
	note(s, "webhook.idempotency_pointer", w.IdempotencyPointer, full.IdempotencyPointer)
	note(s, "webhook.rate_limit_per_second", w.RateLimitPerSecond, full.RateLimitPerSecond)
	note(s, "webhook.burst", w.Burst, full.Burst)
	if h := w.Auth.HMAC; h != nil {
		const at = "webhook.auth.hmac."
		used := full.Auth.HMAC
		note(s, at+"algorithm", h.Algorithm, used.Algorithm)
		note(s, at+"encoding", h.Encoding, used.Encoding)
		note(s, at+"secret_encoding", h.SecretEncoding, used.SecretEncoding)
		note(s, at+"header", h.Header, used.Header)
		note(s, at+"separator", h.Separator, used.Separator)
		note(s, at+"prefix", h.Prefix, used.Prefix)
		note(s, at+"timestamp_header", h.TimestampHeader, used.TimestampHeader)
		note(s, at+"timestamp_prefix", h.TimestampPrefix, used.TimestampPrefix)
		note(s, at+"signed", h.Signed, used.Signed)
		note(s, at+"replay_window", h.ReplayWindow, used.ReplayWindow)
	}
	return full
}

func (t Schedule) withDefaults(s *settings) Schedule {
	use(s, "schedule.time_zone", &t.TimeZone, DefaultTimeZone, FromDefault)
	missed := MissedSkip
	if len(t.At) > 0 {
		missed = MissedOnce
	}
	use(s, "schedule.missed", &t.Missed, missed, FromDefault)
	if t.Missed == MissedAll {
		use(s, "schedule.missed_max", &t.MissedMax, DefaultMissedMax, FromDefault)
	}
	use(s, "schedule.missed_after", &t.MissedAfter, topics.Duration(DefaultMissedAfter), FromDefault)
	use(s, "schedule.overlap", &t.Overlap, OverlapAllow, FromDefault)
	use(s, "schedule.jitter", &t.Jitter, 0, FromDefault)
	if len(t.Input) == 0 {
		t.Input = []byte("{}")
	}
	return t
}
