package trigger

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// Webhook is a source: POST /hooks/<id>.
type Webhook struct {
	Auth WebhookAuth `json:"auth"`
	// MaxBodyBytes bounds a request. Default 1 048 576.
	MaxBodyBytes int64 `json:"max_body_bytes,omitempty"`
	// IdempotencyHeader names the header that tells a repetition, where the body is no
	// CloudEvent. Default: Idempotency-Key, or that of the style of the signature.
	IdempotencyHeader string `json:"idempotency_header,omitempty"`
	// IdempotencyPointer is the JSON pointer (RFC 6901) of the text or number in the body
	// that tells a repetition where neither an event nor the header does. Default: none, or
	// that of the style of the signature.
	IdempotencyPointer string `json:"idempotency_pointer,omitempty"`
	// RateLimitPerSecond and Burst bound requests over all processes. Default: none; a burst
	// of one second.
	RateLimitPerSecond float64 `json:"rate_limit_per_second,omitempty"`
	Burst              int     `json:"burst,omitempty"`
}

// WebhookAuth says how a caller proves itself. Exactly one is set; None has to be said.
type WebhookAuth struct {
	HMAC   *HMAC      `json:"hmac,omitempty"`
	Bearer *SecretRef `json:"bearer,omitempty"`
	Basic  *Basic     `json:"basic,omitempty"`
	// None lets everybody in.
	None bool `json:"none,omitempty"`
}

// HMAC is a signature over the body, and over a timestamp where one is named.
type HMAC struct {
	// Secrets are accepted alternatively, so that one can be replaced.
	Secrets []SecretRef `json:"secrets"`
	// Style fills in all that follows, and how repetitions are told, as the named senders
	// have it: github, stripe, slack, or standard (Standard Webhooks). What is set beside it
	// counts. Default: none.
	Style Style `json:"style,omitempty"`
	// Algorithm is sha256 (default), sha1 or sha512.
	Algorithm string `json:"algorithm,omitempty"`
	// Encoding is hex (default) or base64.
	Encoding string `json:"encoding,omitempty"`
	// SecretEncoding says what the secrets hold: text (default), or base64, before which
	// "whsec_" may stand.
	SecretEncoding string `json:"secret_encoding,omitempty"`
	// Header holds the signature. Default: X-Signature-256.
	Header string `json:"header,omitempty"`
	// Separator stands between the elements of the header where it has several. Those that
	// begin with Prefix are signatures, of which one has to match.
	Separator string `json:"separator,omitempty"`
	// Prefix stands before a signature, such as "sha256=".
	Prefix string `json:"prefix,omitempty"`
	// TimestampHeader holds seconds since 1970, behind TimestampPrefix. Where it is set, a
	// request is good for as long as ReplayWindow says, and once.
	TimestampHeader string `json:"timestamp_header,omitempty"`
	TimestampPrefix string `json:"timestamp_prefix,omitempty"`
	// Signed is what is signed, with {timestamp}, {id} (the value of the idempotency
	// header) and {body}. Default: {body}, or {timestamp}.{body} with a timestamp.
	Signed string `json:"signed,omitempty"`
	// ReplayWindow is how old, or far in the future, a timestamp may be. Default 5 min.
	ReplayWindow topics.Duration `json:"replay_window,omitzero"`
}

// Style names how a well-known sender signs.
type Style string

// The styles.
const (
	StyleGitHub   Style = "github"
	StyleStripe   Style = "stripe"
	StyleSlack    Style = "slack"
	StyleStandard Style = "standard"
)

// What signatures are made with.
const (
	AlgorithmSHA256 = "sha256"
	AlgorithmSHA1   = "sha1"
	AlgorithmSHA512 = "sha512"

	EncodingHex    = "hex"
	EncodingBase64 = "base64"
	EncodingText   = "text"
)

// Basic is HTTP basic authentication.
type Basic struct {
	Username string    `json:"username"`
	Password SecretRef `json:"password"`
}

// The bounds and defaults of webhooks.
const (
	// MaxBodyBytesDefault is what a body may have where nothing is said, MaxBodyBytesLimit
	// what may be said.
	MaxBodyBytesDefault = 1 << 20
	MaxBodyBytesLimit   = 64 << 20
	// MaxSecrets bounds the secrets of a signature.
	MaxSecrets = 8
	// ReplayWindowDefault is how far a timestamp may be off, MaxReplayWindow what may be
	// said: requests have to be remembered for twice as long.
	ReplayWindowDefault = 5 * time.Minute
	MaxReplayWindow     = time.Hour
	// MaxRatePerSecond bounds the rate of a webhook, MinRatePerSecond is one a day.
	MaxRatePerSecond = 100_000
	MinRatePerSecond = 1.0 / 86_400
	// MaxBurst bounds its burst.
	MaxBurst = 100_000
)

// preset is what a style stands for.
type preset struct {
	HMAC
	header, pointer string
}

func presets() map[Style]preset {
	return map[Style]preset{
		StyleGitHub: {HMAC: HMAC{Header: "X-Hub-Signature-256", Prefix: "sha256="}, header: "X-GitHub-Delivery"},
		StyleStripe: {HMAC: HMAC{
			Header: "Stripe-Signature", Separator: ",", Prefix: "v1=", TimestampHeader: "Stripe-Signature", TimestampPrefix: "t=",
		}, pointer: "/id"},
		StyleSlack: {HMAC: HMAC{
			Header: "X-Slack-Signature", Prefix: "v0=", TimestampHeader: "X-Slack-Request-Timestamp", Signed: "v0:{timestamp}:{body}",
		}, pointer: "/event_id"},
		StyleStandard: {HMAC: HMAC{
			Header: "Webhook-Signature", Separator: " ", Prefix: "v1,", Encoding: EncodingBase64, SecretEncoding: EncodingBase64,
			TimestampHeader: "Webhook-Timestamp", Signed: "{id}.{timestamp}.{body}",
		}, header: "Webhook-Id"},
	}
}

// WithDefaults returns the webhook with what was left out filled in. It shares nothing
// that it changes with w.
func (w Webhook) WithDefaults() Webhook {
	if w.Auth.HMAC != nil {
		style := presets()[w.Auth.HMAC.Style]
		h := w.Auth.HMAC.withDefaults(style.HMAC)
		w.Auth.HMAC = &h
		w.IdempotencyHeader = cmp.Or(w.IdempotencyHeader, style.header)
		w.IdempotencyPointer = cmp.Or(w.IdempotencyPointer, style.pointer)
	}
	w.MaxBodyBytes = cmp.Or(w.MaxBodyBytes, MaxBodyBytesDefault)
	w.IdempotencyHeader = cmp.Or(w.IdempotencyHeader, "Idempotency-Key")
	if w.RateLimitPerSecond > 0 && w.Burst == 0 {
		w.Burst = max(1, int(math.Ceil(min(w.RateLimitPerSecond, MaxBurst))))
	}
	return w
}

func (h HMAC) withDefaults(style HMAC) HMAC {
	h.Algorithm = cmp.Or(h.Algorithm, style.Algorithm, AlgorithmSHA256)
	h.Encoding = cmp.Or(h.Encoding, style.Encoding, EncodingHex)
	h.SecretEncoding = cmp.Or(h.SecretEncoding, style.SecretEncoding, EncodingText)
	h.Header = cmp.Or(h.Header, style.Header, "X-Signature-256")
	h.Separator = cmp.Or(h.Separator, style.Separator)
	h.Prefix = cmp.Or(h.Prefix, style.Prefix)
	h.TimestampHeader = cmp.Or(h.TimestampHeader, style.TimestampHeader)
	h.TimestampPrefix = cmp.Or(h.TimestampPrefix, style.TimestampPrefix)
	h.Signed = cmp.Or(h.Signed, style.Signed)
	if h.TimestampHeader != "" {
		h.Signed = cmp.Or(h.Signed, "{timestamp}.{body}")
		h.ReplayWindow = cmp.Or(h.ReplayWindow, topics.Duration(ReplayWindowDefault))
	}
	h.Signed = cmp.Or(h.Signed, "{body}")
	return h
}

// Check tells fault all that is wrong with the webhook. Pointers are relative to it, codes
// are those of Fault. The places that secrets are in are not looked at.
func (w Webhook) Check(fault func(pointer, code, message string)) {
	w.checkAuth(fault)
	if w.MaxBodyBytes < 0 || w.MaxBodyBytes > MaxBodyBytesLimit {
		fault("/max_body_bytes", "out_of_range", "must be between 1 and 67108864")
	}
	if !headerName(w.IdempotencyHeader) {
		fault("/idempotency_header", "invalid", "is not the name of a header")
	}
	if w.IdempotencyPointer != "" && !strings.HasPrefix(w.IdempotencyPointer, "/") {
		fault("/idempotency_pointer", "invalid", "is not a JSON pointer: it begins with /, such as /id")
	}
	// A rate that is no number is not within the bounds either.
	if r := w.RateLimitPerSecond; r != 0 && !(r >= MinRatePerSecond && r <= MaxRatePerSecond) {
		fault("/rate_limit_per_second", "out_of_range", "must be between one a day (0.0000116) and 100000")
	}
	switch {
	case w.Burst < 0 || w.Burst > MaxBurst:
		fault("/burst", "out_of_range", "must be between 1 and 100000")
	case w.Burst > 0 && w.RateLimitPerSecond == 0:
		fault("/burst", "conflict", "is only used with rate_limit_per_second")
	}
}

func (w Webhook) checkAuth(fault func(pointer, code, message string)) {
	a := w.Auth
	ways := 0
	for _, set := range []bool{a.HMAC != nil, a.Bearer != nil, a.Basic != nil, a.None} {
		if set {
			ways++
		}
	}
	switch {
	case ways == 0:
		fault("/auth", "required", "say how callers prove themselves: hmac, bearer or basic, or none: true to let everybody in")
	case ways > 1:
		fault("/auth", "conflict", "only one of hmac, bearer, basic and none may be set")
	}
	if a.HMAC != nil {
		a.HMAC.check(func(pointer, code, message string) { fault("/auth/hmac"+pointer, code, message) })
	}
	if a.Basic != nil && (a.Basic.Username == "" || strings.Contains(a.Basic.Username, ":")) {
		fault("/auth/basic/username", "invalid", "must not be empty or contain a colon")
	}
}

func (h HMAC) check(fault func(pointer, code, message string)) {
	oneOf := func(pointer, value string, known ...string) {
		for _, k := range append(known, "") {
			if value == k {
				return
			}
		}
		fault(pointer, "invalid", "must be one of "+strings.Join(known, ", "))
	}
	switch n := len(h.Secrets); {
	case n == 0:
		fault("/secrets", "required", "name at least one secret")
	case n > MaxSecrets:
		fault("/secrets", "out_of_range", "must have at most 8 secrets")
	}
	oneOf("/style", string(h.Style), string(StyleGitHub), string(StyleStripe), string(StyleSlack), string(StyleStandard))
	oneOf("/algorithm", h.Algorithm, AlgorithmSHA256, AlgorithmSHA1, AlgorithmSHA512)
	oneOf("/encoding", h.Encoding, EncodingHex, EncodingBase64)
	oneOf("/secret_encoding", h.SecretEncoding, EncodingText, EncodingBase64)
	oneOf("/separator", h.Separator, ",", ";", " ")
	if !headerName(h.Header) {
		fault("/header", "invalid", "is not the name of a header")
	}
	if !headerName(h.TimestampHeader) {
		fault("/timestamp_header", "invalid", "is not the name of a header")
	}
	if w := time.Duration(h.ReplayWindow); w < 0 || w > MaxReplayWindow {
		fault("/replay_window", "out_of_range", "must be at most 1h")
	}
	full := h.withDefaults(presets()[h.Style].HMAC)
	if full.TimestampHeader == "" && h.ReplayWindow != 0 {
		fault("/replay_window", "conflict", "is only used with timestamp_header")
	}
	full.checkSigned(fault)
}

// checkSigned holds that what is signed vouches for what counts.
func (h HMAC) checkSigned(fault func(pointer, code, message string)) {
	if strings.Count(h.Signed, "{body}") != 1 {
		fault("/signed", "invalid", "must contain {body} once, else the signature vouches for nothing")
	}
	dated := strings.Contains(h.Signed, "{timestamp}")
	switch {
	case dated && h.TimestampHeader == "":
		fault("/signed", "conflict", "contains {timestamp}, and timestamp_header does not say where that is")
	case !dated && h.TimestampHeader != "":
		fault("/signed", "conflict", "must contain {timestamp}: anybody could change one that is not signed")
	}
}

// headerName reports whether a name is empty or one that a header may have.
func headerName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}
