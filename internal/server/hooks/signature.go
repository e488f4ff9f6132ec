package hooks

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what old senders sign with; as an HMAC it is not broken
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
)

// maxSignatures bounds the signatures of a request that are looked at.
const maxSignatures = 8

// checkSignature checks the signature of a request, where one is asked for. The nonce is the
// same for requests that one signature is good for; it is empty where signatures have no
// time, since equal requests are then nothing unusual.
func (p *plan) checkSignature(r *http.Request, body []byte, k *keys, now time.Time) (nonce string, refusal *problem.Problem) {
	h := p.Auth.HMAC
	if h == nil {
		return "", nil
	}
	signatures := elements(r.Header.Values(h.Header), h.Separator, h.Prefix)
	if len(signatures) == 0 {
		return "", unsigned("the header %s has no signature%s", h.Header, behind(h.Prefix))
	}
	stamp := ""
	if h.TimestampHeader != "" {
		stamps := elements(r.Header.Values(h.TimestampHeader), h.Separator, h.TimestampPrefix)
		if len(stamps) != 1 {
			return "", unsigned("the header %s has no timestamp%s", h.TimestampHeader, behind(h.TimestampPrefix))
		}
		stamp = stamps[0]
	}
	id := r.Header.Get(p.IdempotencyHeader)
	if id == "" && strings.Contains(h.Signed, "{id}") {
		return "", unsigned("the header %s is missing, which is signed too", p.IdempotencyHeader)
	}
	if !verify(h, k.hmac, signatures, stamp, id, body) {
		return "", unsigned("the signature is not one of the body with a secret of the webhook")
	}
	if h.TimestampHeader == "" {
		return "", nil
	}
	if refusal := inWindow(stamp, now, time.Duration(h.ReplayWindow)); refusal != nil {
		return "", refusal
	}
	signed := sha256.New()
	write(signed, h.Signed, stamp, id, body)
	return "signed:" + hex.EncodeToString(signed.Sum(nil)), nil
}

// elements returns what stands behind the prefix in those elements of header values that have
// it.
func elements(values []string, separator, prefix string) []string {
	var found []string
	for _, value := range values {
		parts := []string{value}
		if separator != "" {
			parts = strings.Split(value, separator)
		}
		for _, part := range parts {
			text, ok := strings.CutPrefix(strings.TrimSpace(part), prefix)
			if ok && text != "" && len(found) < maxSignatures {
				found = append(found, text)
			}
		}
	}
	return found
}

// verify compares every signature with that of every secret, whichever matches.
func verify(h *trigger.HMAC, secrets [][]byte, signatures []string, stamp, id string, body []byte) bool {
	var sent [][]byte
	for _, text := range signatures {
		if mac, err := decodeMAC(h.Encoding, text); err == nil {
			sent = append(sent, mac)
		}
	}
	matches := false
	for _, secret := range secrets {
		mac := hmac.New(algorithm(h.Algorithm), secret)
		write(mac, h.Signed, stamp, id, body)
		want := mac.Sum(nil)
		for _, s := range sent {
			if hmac.Equal(s, want) {
				matches = true
			}
		}
	}
	return matches
}

func algorithm(name string) func() hash.Hash {
	switch name {
	case trigger.AlgorithmSHA1:
		return sha1.New
	case trigger.AlgorithmSHA512:
		return sha512.New
	}
	return sha256.New
}

func decodeMAC(encoding, text string) ([]byte, error) {
	if encoding == trigger.EncodingBase64 {
		return base64.StdEncoding.DecodeString(text)
	}
	return hex.DecodeString(text)
}

// write writes what is signed.
func write(to hash.Hash, signed, stamp, id string, body []byte) {
	for signed != "" {
		text, rest, found := strings.Cut(signed, "{")
		_, _ = to.Write([]byte(text)) // a hash takes everything
		if !found {
			return
		}
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case closed && name == "body":
			_, _ = to.Write(body)
		case closed && name == "timestamp":
			_, _ = to.Write([]byte(stamp))
		case closed && name == "id":
			_, _ = to.Write([]byte(id))
		default: // a brace that is just one
			_, _ = to.Write([]byte("{"))
			after = rest
		}
		signed = after
	}
}

// inWindow checks a timestamp whose signature is good.
func inWindow(stamp string, now time.Time, window time.Duration) *problem.Problem {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return unsigned("the timestamp is not a number of seconds since 1970")
	}
	if off := now.Sub(time.Unix(seconds, 0)); off.Abs() > window {
		return unsigned("the timestamp is more than %s away from the server's time: the request is too old, or a clock is wrong", window)
	}
	return nil
}

func behind(prefix string) string {
	if prefix == "" {
		return ""
	}
	return fmt.Sprintf(" behind %q", prefix)
}

func unsigned(format string, args ...any) *problem.Problem {
	return problem.HookUnauthorized().With(fmt.Sprintf(format, args...))
}
