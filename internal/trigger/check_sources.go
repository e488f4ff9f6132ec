package trigger

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/schedule/cron"
)

// Bounds of sources.
const (
	MaxBrokers       = 64
	MaxTopics        = 64
	MaxTopicBytes    = 249
	MaxGroupBytes    = 255
	MaxPrefetchCount = 100_000
	MaxPrefetchBytes = 1 << 30
	MaxFetchBytes    = 100 << 20
	MaxRate          = 1_000_000
	MaxBatch         = 1000
	MaxTimes         = 1000
	MaxMissed        = 10_000
	MaxMissedAfter   = 24 * time.Hour
	MaxJitter        = 24 * time.Hour
)

var topicFormat = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

func (c *checker) kafka(k *Kafka, installed Defaults) {
	c.brokers(k, installed)
	c.topics(k.Topics)
	c.text("/kafka/group", k.Group, MaxGroupBytes, false)
	c.oneOf("/kafka/from", k.From, FromEarliest, FromLatest)
	c.whole("/kafka/prefetch_count", k.PrefetchCount, 1, MaxPrefetchCount)
	c.whole("/kafka/prefetch_bytes", k.PrefetchBytes, 1, MaxPrefetchBytes)
	c.whole("/kafka/max_bytes_per_fetch", k.MaxBytesPerFetch, 1024, MaxFetchBytes)
	c.rate("/kafka/rate_limit_per_second", k.RateLimitPerSecond)
	c.whole("/kafka/batch", k.Batch, 1, MaxBatch)
	c.tls(k.TLS, installed.Secrets)
	c.sasl(k.SASL, installed.Secrets)
}

func (c *checker) brokers(k *Kafka, installed Defaults) {
	if len(k.Brokers) == 0 {
		if len(installed.Brokers) == 0 {
			c.add("/kafka/brokers", CodeRequired, "is required: this installation has no brokers of its own").hint(`name some, such as ["kafka-1:9092"]`)
		}
		if k.TLS != (TLS{}) || k.SASL != (SASL{}) {
			pointer := "/kafka/tls"
			if k.TLS == (TLS{}) {
				pointer = "/kafka/sasl"
			}
			c.add(pointer, CodeConflict, "is for brokers of its own: without kafka.brokers the trigger uses those of the installation, with their TLS and SASL").
				hint("add brokers, or leave this out")
		}
		return
	}
	c.whole("/kafka/brokers", len(k.Brokers), 1, MaxBrokers)
	for i, broker := range k.Brokers {
		if !isAddress(broker) {
			c.add(item("/kafka/brokers", i), CodeInvalid, "is not host:port, such as kafka-1:9092")
		}
	}
}

// isAddress says whether a text is host:port; addresses of IPv6 are in brackets.
func isAddress(text string) bool {
	if address, err := netip.ParseAddrPort(text); err == nil {
		return address.Port() > 0
	}
	host, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	return host != "" && err == nil && n > 0 && !strings.ContainsAny(host, "/@[] \t\n")
}

func (c *checker) topics(names []string) {
	if len(names) == 0 {
		c.add("/kafka/topics", CodeRequired, "is required: the topics to read")
		return
	}
	if len(names) > MaxTopics {
		c.add("/kafka/topics", CodeRange, "has %d topics, %d are allowed", len(names), MaxTopics)
	}
	for i, name := range names {
		switch {
		case slices.Contains(names[:i], name):
			c.add(item("/kafka/topics", i), CodeDuplicate, "names a topic for a second time")
		case len(name) > MaxTopicBytes || !topicFormat.MatchString(name) || name == "." || name == "..":
			c.add(item("/kafka/topics", i), CodeInvalid, "is no name of a topic: letters, digits, '.', '_' and '-' are, at most %d", MaxTopicBytes).
				hint("patterns are not supported: name each topic")
		}
	}
}

// rate checks messages per second; 0 is no limit.
func (c *checker) rate(pointer string, rate float64) {
	if !(rate >= 0 && rate <= MaxRate) || rate > 0 && rate < 0.001 {
		c.add(pointer, CodeRange, "must be between 0.001 and %d, or be left out for no limit", MaxRate)
	}
}

func (c *checker) tls(t TLS, s Secrets) {
	const at = "/kafka/tls"
	if !t.Enabled && t != (TLS{}) {
		c.add(at+"/enabled", CodeConflict, "must be true where tls says anything").hint("write enabled: true, or leave tls out")
	}
	c.secret(at+"/ca", t.CA, s, false)
	c.secret(at+"/cert", t.Cert, s, !t.Key.IsZero())
	c.secret(at+"/key", t.Key, s, !t.Cert.IsZero())
	c.text(at+"/server_name", t.ServerName, MaxGroupBytes, false)
}

func (c *checker) sasl(a SASL, s Secrets) {
	const at = "/kafka/sasl"
	switch a.Mechanism {
	case "":
		if a != (SASL{}) {
			c.add(at+"/mechanism", CodeRequired, "is required: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
		}
		return
	case SASLPlain, SASLScram256, SASLScram512:
		if a.Username == "" {
			c.add(at+"/username", CodeRequired, "is required for %s", a.Mechanism)
		}
		c.text(at+"/username", a.Username, MaxGroupBytes, false)
		c.secret(at+"/password", a.Password, s, true)
		if !a.Token.IsZero() {
			c.add(at+"/token", CodeConflict, "is for OAUTHBEARER, not for %s", a.Mechanism)
		}
	case SASLOAuthBearer:
		c.secret(at+"/token", a.Token, s, true)
		if a.Username != "" {
			c.add(at+"/username", CodeConflict, "is not for OAUTHBEARER: the token says who it is")
		}
		if !a.Password.IsZero() {
			c.add(at+"/password", CodeConflict, "is not for OAUTHBEARER: it has a token")
		}
	default:
		f := c.add(at+"/mechanism", CodeInvalid, "is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER")
		for _, known := range []string{SASLPlain, SASLScram256, SASLScram512, SASLOAuthBearer} {
			if plainWord(a.Mechanism) == plainWord(known) || plainWord(a.Mechanism) == strings.Replace(plainWord(known), "SHA", "", 1) {
				f.hint("did you mean %s?", known)
			}
		}
	}
}

// plainWord is a word less its case and what stands between its letters.
func plainWord(word string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToUpper(word))
}

func (c *checker) webhook(w *Webhook, installed Defaults) {
	const at = "/webhook"
	w.Check(func(pointer, code, message string) { c.add(at+pointer, code, "%s", message) })
	if h := w.Auth.HMAC; h != nil {
		for i, ref := range h.Secrets {
			c.secret(item(at+"/auth/hmac/secrets", i), ref, installed.Secrets, true)
		}
	}
	if w.Auth.Bearer != nil {
		c.secret(at+"/auth/bearer", *w.Auth.Bearer, installed.Secrets, true)
	}
	if b := w.Auth.Basic; b != nil {
		c.text(at+"/auth/basic/username", b.Username, MaxGroupBytes, false)
		c.secret(at+"/auth/basic/password", b.Password, installed.Secrets, true)
	}
}

func (c *checker) schedule(t, written *Schedule) {
	const at = "/schedule"
	switch {
	case t.Cron == "" && len(t.At) == 0:
		c.add(at, CodeRequired, "must have one of cron, at: when to fire")
	case t.Cron != "" && len(t.At) > 0:
		c.add(at, CodeConflict, "must have one of cron, at, not both").hint("make two triggers")
	case t.Cron == "":
		c.onlyCron(written)
	}
	c.cron(t)
	c.oneTimes(t.At)
	if t.From != nil && t.Until != nil && !t.From.Before(*t.Until) {
		c.add(at+"/until", CodeConflict, "must lie after from")
	}
	c.oneOf(at+"/missed", t.Missed, MissedSkip, MissedOnce, MissedAll)
	c.whole(at+"/missed_max", t.MissedMax, 0, MaxMissed)
	if t.MissedMax != 0 && t.Missed != MissedAll && t.Overlap != OverlapWait {
		c.add(at+"/missed_max", CodeConflict, "is only used where missed is all, or overlap is wait")
	}
	c.span(at+"/missed_after", t.MissedAfter, MaxMissedAfter)
	c.oneOf(at+"/overlap", t.Overlap, OverlapAllow, OverlapSkip, OverlapWait)
	c.span(at+"/jitter", t.Jitter, MaxJitter)
	if !object(t.Input) {
		c.add(at+"/input", CodeWrongType, "must be an object, which the mapping sees as body")
	}
}

// cron checks the expression and the zone.
func (c *checker) cron(t *Schedule) {
	if t.Cron == "" {
		return
	}
	expression, err := cron.Parse(t.Cron, t.TimeZone)
	if wrong, ok := errors.AsType[*cron.Error](err); ok {
		c.add("/schedule/"+wrong.Part, CodeInvalid, "%s", wrong.Message)
		return
	}
	if expression.Next(anyTime()).IsZero() {
		c.add("/schedule/cron", CodeInvalid, "matches no time, such as one of 30 February")
	}
}

// anyTime is a time from which every expression that has times has some.
func anyTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// onlyCron refuses what means nothing to one-off times.
func (c *checker) onlyCron(t *Schedule) {
	if t.TimeZone != "" {
		c.add("/schedule/time_zone", CodeConflict, "is for cron: each time of at has an offset of its own")
	}
	if t.From != nil {
		c.add("/schedule/from", CodeConflict, "is for cron")
	}
	if t.Until != nil {
		c.add("/schedule/until", CodeConflict, "is for cron")
	}
}

func (c *checker) oneTimes(times []time.Time) {
	if len(times) > MaxTimes {
		c.add("/schedule/at", CodeRange, "has %d times, %d are allowed", len(times), MaxTimes)
	}
	for i, at := range times {
		if slices.ContainsFunc(times[:i], at.Equal) {
			c.add(item("/schedule/at", i), CodeDuplicate, "names a time for a second time: it fires once")
		}
	}
}
