package rest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// docsPage shows /openapi.json to people. It loads nothing from anywhere else.
//
//go:embed docs.html
var docsPage string

func (a *API) serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(a.document)
}

// docs returns the handler of /docs. The content security policy names the one
// script and the one style of the page by their hashes, so nothing that gets into
// the document can run.
func (a *API) docs() http.HandlerFunc {
	policy := strings.Join([]string{
		"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"script-src " + hashOf(between(docsPage, "<script>", "</script>")),
		"style-src " + hashOf(between(docsPage, "<style>", "</style>")),
	}, "; ")
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write([]byte(docsPage))
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
