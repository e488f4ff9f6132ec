package hooks

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
)

// plan is a revision of a webhook, ready to check requests.
type plan struct {
	trigger.Webhook
	trigger *trigger.Compiled
}

// keys are the secrets of a hook. Values of which only equality counts are kept as hashes.
type keys struct {
	hmac   [][]byte
	bearer *[sha256.Size]byte
	basic  *[sha256.Size]byte
	// missing are the faults of secrets that others of the signature stand in for.
	missing []error
}

// readAgain is for how long secrets are believed to be what they were: files are replaced.
const readAgain = 5 * time.Second

// complainAgain is how often the log is told of secrets that cannot be read.
const complainAgain = time.Minute

// plan returns what t asks of requests.
func (h *hook) plan(t *trigger.Compiled) *plan {
	h.planMu.Lock()
	defer h.planMu.Unlock()
	if h.current == nil || h.current.trigger != t {
		h.current, h.known = &plan{Webhook: t.Webhook.WithDefaults(), trigger: t}, nil
	}
	return h.current
}

// keys returns the secrets of a plan. What could not be read is tried again at once.
func (h *hook) keys(p *plan) (*keys, error) {
	h.planMu.Lock()
	defer h.planMu.Unlock()
	if h.known != nil && h.current == p && time.Since(h.readAt) < readAgain {
		return h.known, nil
	}
	k, err := readKeys(h.all.deps.Secrets, p.Auth)
	if err != nil {
		return nil, err
	}
	if h.current == p {
		h.known, h.readAt = k, time.Now()
	}
	return k, nil
}

// complain says whether the log has to be told again that the secrets cannot be read.
func (h *hook) complain() bool {
	h.planMu.Lock()
	defer h.planMu.Unlock()
	if !h.complainedAt.IsZero() && time.Since(h.complainedAt) < complainAgain {
		return false
	}
	h.complainedAt = time.Now()
	return true
}

// readKeys reads the secrets of a webhook. Of those of a signature one is enough: another may
// be on its way in or out.
func readKeys(secrets Secrets, auth trigger.WebhookAuth) (*keys, error) {
	read := func(ref trigger.SecretRef) ([]byte, error) {
		s, err := secrets.Resolve(ref)
		if err == nil && s.IsZero() { // with which anybody could sign
			err = errNoSecret
		}
		return []byte(s.Reveal()), err
	}
	k := &keys{}
	switch {
	case auth.HMAC != nil:
		for _, ref := range auth.HMAC.Secrets {
			key, err := read(ref)
			if err == nil && auth.HMAC.SecretEncoding == trigger.EncodingBase64 {
				key, err = decodeSecret(key)
			}
			if err != nil {
				k.missing = append(k.missing, err)
				continue
			}
			k.hmac = append(k.hmac, key)
		}
		switch {
		case len(k.hmac) > 0:
		case len(k.missing) > 0:
			return nil, k.missing[0]
		default:
			return nil, errNoSecret
		}
	case auth.Bearer != nil:
		key, err := read(*auth.Bearer)
		if err != nil {
			return nil, err
		}
		k.bearer = digest(string(key))
	case auth.Basic != nil:
		key, err := read(auth.Basic.Password)
		if err != nil {
			return nil, err
		}
		k.basic = digest(auth.Basic.Username + ":" + string(key))
	}
	return k, nil
}

var (
	errNoSecret  = errors.New("the reference to a secret is empty")
	errNotBase64 = errors.New("a secret is not base64, which secret_encoding says it is")
)

func decodeSecret(text []byte) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimPrefix(text, []byte("whsec_"))))
	if err != nil || len(key) == 0 { // the decoder's error would tell a part of the secret
		return nil, errNotBase64
	}
	return key, nil
}

func digest(text string) *[sha256.Size]byte {
	sum := sha256.Sum256([]byte(text))
	return &sum
}

// checkHeader checks what is proved without the body. The hashes have one length, so that the
// time of an answer tells nothing.
func (p *plan) checkHeader(r *http.Request, k *keys) *problem.Problem {
	var scheme, sent, detail string
	var want *[sha256.Size]byte
	switch {
	case p.Auth.Bearer != nil:
		scheme, want, detail = "Bearer", k.bearer, "send the header Authorization: Bearer <token>"
		name, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(name, scheme) {
			sent = strings.TrimSpace(token)
		}
	case p.Auth.Basic != nil:
		scheme, want, detail = "Basic", k.basic, "send the name and the password of the webhook"
		if name, password, ok := r.BasicAuth(); ok {
			sent = name + ":" + password
		}
	default:
		return nil
	}
	if subtle.ConstantTimeCompare(digest(sent)[:], want[:]) == 1 {
		return nil
	}
	if sent != "" {
		detail = "the credentials are not those of the webhook"
	}
	refusal := problem.HookUnauthorized().With(detail)
	refusal.Header = http.Header{"Www-Authenticate": {scheme + ` realm="millrace webhook"`}}
	return refusal
}
