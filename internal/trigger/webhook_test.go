package trigger_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// faultsOf returns the faults of a webhook as pointer and code.
func faultsOf(w trigger.Webhook) []string {
	found := []string{}
	w.Check(func(pointer, code, _ string) { found = append(found, pointer+" "+code) })
	return found
}

func hmacOf(h trigger.HMAC) trigger.Webhook {
	h.Secrets = []trigger.SecretRef{{Env: "KEY"}}
	return trigger.Webhook{Auth: trigger.WebhookAuth{HMAC: &h}}
}

func TestStylesAreFilledIn(t *testing.T) {
	t.Parallel()
	for _, style := range []trigger.Style{"", trigger.StyleGitHub, trigger.StyleStripe, trigger.StyleSlack, trigger.StyleStandard} {
		w := hmacOf(trigger.HMAC{Style: style})
		assert.Empty(t, faultsOf(w), style)
		full := w.WithDefaults()
		assert.Empty(t, faultsOf(full), "%q: what is filled in is valid", style)
		assert.Equal(t, full, full.WithDefaults(), "%q: once is enough", style)
		assert.Empty(t, w.Auth.HMAC.Header, "%q: the definition is as it was", style)
		assert.Equal(t, full.Auth.HMAC.TimestampHeader != "", full.Auth.HMAC.ReplayWindow == topics.Duration(5*time.Minute), style)
	}
	own := hmacOf(trigger.HMAC{Style: trigger.StyleStandard, Header: "X-Own", ReplayWindow: topics.Duration(time.Minute)})
	own.IdempotencyHeader = "X-Own-Id"
	full := own.WithDefaults()
	assert.Equal(t, "X-Own", full.Auth.HMAC.Header)
	assert.Equal(t, "X-Own-Id", full.IdempotencyHeader)
	assert.Equal(t, "v1,", full.Auth.HMAC.Prefix)
	assert.Equal(t, topics.Duration(time.Minute), full.Auth.HMAC.ReplayWindow)
}

func TestDefaultsOfWebhooks(t *testing.T) {
	t.Parallel()
	full := trigger.Webhook{RateLimitPerSecond: 2.5}.WithDefaults()
	assert.EqualValues(t, 1<<20, full.MaxBodyBytes)
	assert.Equal(t, "Idempotency-Key", full.IdempotencyHeader)
	assert.Equal(t, 3, full.Burst, "a second's worth")
	assert.Equal(t, 1, trigger.Webhook{RateLimitPerSecond: 0.01}.WithDefaults().Burst)
	assert.Zero(t, trigger.Webhook{}.WithDefaults().Burst)
}

func TestEachFaultOfAWebhook(t *testing.T) {
	t.Parallel()
	open := func(change func(*trigger.Webhook)) trigger.Webhook {
		w := trigger.Webhook{Auth: trigger.WebhookAuth{None: true}}
		change(&w)
		return w
	}
	for want, w := range map[string]trigger.Webhook{
		"/auth required":                      {},
		"/auth conflict":                      {Auth: trigger.WebhookAuth{None: true, Bearer: &trigger.SecretRef{Env: "A"}}},
		"/auth/basic/username invalid":        {Auth: trigger.WebhookAuth{Basic: &trigger.Basic{Username: "a:b", Password: trigger.SecretRef{Env: "A"}}}},
		"/auth/hmac/secrets required":         {Auth: trigger.WebhookAuth{HMAC: &trigger.HMAC{}}},
		"/auth/hmac/secrets out_of_range":     {Auth: trigger.WebhookAuth{HMAC: &trigger.HMAC{Secrets: make([]trigger.SecretRef, 9)}}},
		"/auth/hmac/style invalid":            hmacOf(trigger.HMAC{Style: "gitlab"}),
		"/auth/hmac/algorithm invalid":        hmacOf(trigger.HMAC{Algorithm: "md5"}),
		"/auth/hmac/encoding invalid":         hmacOf(trigger.HMAC{Encoding: "text"}),
		"/auth/hmac/secret_encoding invalid":  hmacOf(trigger.HMAC{SecretEncoding: "hex"}),
		"/auth/hmac/separator invalid":        hmacOf(trigger.HMAC{Separator: "--"}),
		"/auth/hmac/header invalid":           hmacOf(trigger.HMAC{Header: "X Signature"}),
		"/auth/hmac/timestamp_header invalid": hmacOf(trigger.HMAC{TimestampHeader: "X:Time"}),
		"/auth/hmac/replay_window conflict":   hmacOf(trigger.HMAC{ReplayWindow: 1}),
		"/auth/hmac/signed conflict":          hmacOf(trigger.HMAC{Signed: "{timestamp}.{body}"}),
		"/auth/hmac/signed invalid":           hmacOf(trigger.HMAC{TimestampHeader: "X-Time", Signed: "{timestamp}"}),
		"/auth/hmac/replay_window out_of_range": hmacOf(trigger.HMAC{TimestampHeader: "X-Time",
			ReplayWindow: topics.Duration(2 * time.Hour)}),
		"/max_body_bytes out_of_range":        open(func(w *trigger.Webhook) { w.MaxBodyBytes = 1 << 30 }),
		"/idempotency_header invalid":         open(func(w *trigger.Webhook) { w.IdempotencyHeader = "a b" }),
		"/idempotency_pointer invalid":        open(func(w *trigger.Webhook) { w.IdempotencyPointer = "id" }),
		"/rate_limit_per_second out_of_range": open(func(w *trigger.Webhook) { w.RateLimitPerSecond = math.NaN() }),
		"/burst conflict":                     open(func(w *trigger.Webhook) { w.Burst = 1 }),
		"/burst out_of_range":                 open(func(w *trigger.Webhook) { w.Burst = -1 }),
	} {
		assert.Equal(t, []string{want}, faultsOf(w))
	}
	unsigned := hmacOf(trigger.HMAC{TimestampHeader: "X-Time", Signed: "{body}"})
	assert.Equal(t, []string{"/auth/hmac/signed conflict"}, faultsOf(unsigned), "a time that is not signed proves nothing")
}
