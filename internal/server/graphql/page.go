package graphql

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// pageText lets people write queries and look at the schema. It loads nothing from
// anywhere else and works without a network.
//
//go:embed page.html
var pageText string

// Page answers with the page. It needs no token: it holds nothing but itself.
func (s *Server) Page(w http.ResponseWriter, r *http.Request) { s.page(w, r) }

// page returns the handler of the page. The content security policy names its one
// script and its one style by their hashes, so nothing that gets into an answer can
// run.
func page() http.HandlerFunc {
	policy := strings.Join([]string{
		"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"script-src " + hashOf(between(pageText, "<script>", "</script>")),
		"style-src " + hashOf(between(pageText, "<style>", "</style>")),
	}, "; ")
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		h.Set("Vary", "Accept")
		_, _ = w.Write([]byte(pageText))
	}
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
