package hooks

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/topics"
)

// maxKeptBytes bounds the headers that are kept with what is made, and the query.
const maxKeptBytes = 16 << 10

// Metadata is what is kept of a request with what it has made.
type Metadata struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Query is the query without the values of what looks like a credential.
	Query string `json:"query,omitempty"`
	// Headers are sorted by name. Those that look like credentials are left out.
	Headers []MetadataHeader `json:"headers,omitempty"`
	// HeadersLeftOut is how many were too much to keep.
	HeadersLeftOut int `json:"headers_left_out,omitempty"`
	// RemoteAddress is that of the connection: of a proxy, where there is one.
	RemoteAddress string `json:"remote_address,omitempty"`
	RequestID     string `json:"request_id,omitempty"`
}

// MetadataHeader is a header: its value is text, or base64 where it is no UTF-8.
type MetadataHeader struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Base64 []byte `json:"value_base64,omitempty"`
}

// headers returns the headers of a request without credentials: by name, in lower case.
func (p *plan) headers(r *http.Request) []topics.Header {
	var out []topics.Header
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if isCredential(name) || p.Auth.HMAC != nil && strings.EqualFold(name, p.Auth.HMAC.Header) {
			continue
		}
		for _, value := range r.Header[name] {
			out = append(out, topics.Header{Key: strings.ToLower(name), Value: []byte(value)})
		}
	}
	return out
}

// isCredential reports whether a header or a parameter of that name may hold a secret.
func isCredential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{
		"auth", "cookie", "token", "secret", "signature", "password", "passwd", "credential", "api-key", "apikey", "api_key", "access-key", "access_key",
	}, func(word string) bool { return strings.Contains(name, word) })
}

func metadataOf(r *http.Request, headers []topics.Header) Metadata {
	m := Metadata{
		Method: r.Method, Path: r.URL.EscapedPath(), Query: publicQuery(r.URL), RemoteAddress: r.RemoteAddr, RequestID: problem.RequestID(r.Context()),
	}
	size := 0
	for _, h := range headers {
		if size += len(h.Key) + len(h.Value); size > maxKeptBytes {
			m.HeadersLeftOut++
			continue
		}
		kept := MetadataHeader{Name: h.Key}
		if utf8.Valid(h.Value) {
			kept.Value = string(h.Value)
		} else {
			kept.Base64 = h.Value
		}
		m.Headers = append(m.Headers, kept)
	}
	return m
}

// publicQuery returns the query of a URL without secrets.
func publicQuery(u *url.URL) string {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(u.RawQuery) > maxKeptBytes {
		return ""
	}
	secret := false
	for name := range values {
		if isCredential(name) {
			values[name], secret = []string{"***"}, true
		}
	}
	if secret {
		return values.Encode()
	}
	return strings.ToValidUTF8(u.RawQuery, "\uFFFD")
}
