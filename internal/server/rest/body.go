package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/server/problem"
)

// readBody returns the body of a request: at most limit bytes, declared as JSON.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if err := checkMediaType(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, err
	case err != nil: // the caller broke off, or was too slow
		return nil, problem.MalformedJSON().With("the body ended before it was complete")
	case !utf8.Valid(buf.Bytes()):
		return nil, problem.MalformedJSON().With("the body is not UTF-8")
	}
	return buf.Bytes(), nil
}

func checkMediaType(h http.Header) error {
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return problem.UnsupportedMediaType().With("send the body without Content-Encoding")
	}
	declared := h.Get("Content-Type")
	if declared == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(declared)
	charset := params["charset"]
	if err == nil && media == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return problem.UnsupportedMediaType().With("send the body as application/json")
}

// many marks a parameter that may be given more than once.
const many = "..."

// checkQuery refuses parameters that the route does not know, those that are
// given twice where they are not marked by many, and texts that cannot be stored.
func checkQuery(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, problem.InvalidParameter().With("the query is not well-formed")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case slices.Contains(known, name+many):
		case !slices.Contains(known, name):
			return nil, badParameter(name, "unknown_parameter", "is not a parameter of this route")
		case len(q[name]) > 1:
			return nil, badParameter(name, "duplicate_parameter", "is given more than once")
		}
		for _, value := range q[name] {
			if err := checkText(name, value); err != nil {
				return nil, err
			}
		}
	}
	return q, nil
}

// checkText refuses what PostgreSQL cannot compare with.
func checkText(name, value string) error {
	if !utf8.ValidString(value) {
		return badParameter(name, "invalid", "is not valid UTF-8")
	}
	for _, c := range value {
		if c < 0x20 || c == 0x7f {
			return badParameter(name, "invalid", "contains control characters")
		}
	}
	return nil
}

// number reads a parameter that is a whole number within bounds.
func number(q url.Values, name string, low, high, unset int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, badParameter(name, "wrong_type", "must be a whole number")
	}
	if n < low || n > high {
		return 0, badParameter(name, "out_of_range", "must be between %d and %d", low, high)
	}
	return n, nil
}

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, status int, body any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(buf.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the caller may be gone: nobody to tell
	return nil
}

// clip bounds a text of the caller that is repeated to it.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
