package graphql

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/server/strictjson"
)

// The media types of answers: the older one is answered with status 200 whatever the
// query comes to, the newer one says with its status whether it was executed.
const (
	mediaJSON     = "application/json"
	mediaResponse = "application/graphql-response+json"
)

// request is the body of a POST.
type request struct {
	Query         string          `json:"query"`
	OperationName string          `json:"operationName"`
	Variables     json.RawMessage `json:"variables"`
	Extensions    json.RawMessage `json:"extensions"`

	variables map[string]any
}

// WantsPage reports whether a request is a browser's for the page, rather than a
// query.
func WantsPage(r *http.Request) bool { return r.URL.RawQuery == "" && prefersHTML(r.Header) }

// Get answers a query in a URL, which the guard has let through.
func (s *Server) Get(w http.ResponseWriter, r *http.Request) {
	media, ok := s.negotiate(w, r)
	if !ok {
		return
	}
	// A page of another site can make a browser send a GET. It could not read the
	// answer, but the work would be done.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		problem.Write(w, r, problem.CrossOrigin().With("send queries from the page at /graphql, or without a browser"))
		return
	}
	req, fault := s.parameters(r)
	if fault != nil {
		s.write(w, media, http.StatusBadRequest, refused(fault))
		return
	}
	s.serve(w, r, media, req)
}

// parameters reads a query from a URL.
func (s *Server) parameters(r *http.Request) (request, *gqlerror.Error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return request{}, fault(codeBadRequest, "the parameters of the URL are not well-formed")
	}
	for name, values := range q {
		if !slices.Contains([]string{"query", "operationName", "variables", "extensions"}, name) {
			return request{}, fault(codeBadRequest, "%q is not a parameter: use query, operationName, variables", clip(name))
		}
		if len(values) > 1 {
			return request{}, fault(codeBadRequest, "%s is given more than once", name)
		}
	}
	req := request{Query: q.Get("query"), OperationName: q.Get("operationName")}
	if text := q.Get("variables"); text != "" {
		req.Variables = json.RawMessage(text)
	}
	if text := q.Get("extensions"); text != "" {
		req.Extensions = json.RawMessage(text)
	}
	return req, s.complete(&req)
}

// Post answers POST, which the guard has let through.
func (s *Server) Post(w http.ResponseWriter, r *http.Request) {
	media, ok := s.negotiate(w, r)
	if !ok {
		return
	}
	// Forms and plain texts can be sent across sites without being asked for.
	if sent, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || sent != mediaJSON ||
		params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		problem.Write(w, r, problem.UnsupportedMediaType().With("send the query as application/json: {\"query\": \"...\", \"variables\": {}}"))
		return
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		problem.Write(w, r, problem.UnsupportedMediaType().With("send the body without Content-Encoding"))
		return
	}
	if r.URL.RawQuery != "" {
		s.write(w, media, http.StatusBadRequest, refused(fault(codeBadRequest, "a POST has its query in the body, not in the URL")))
		return
	}
	req, code, fault := s.body(w, r)
	if fault != nil {
		s.write(w, media, code, refused(fault))
		return
	}
	s.serve(w, r, media, req)
}

// body reads the body of a POST. The status is that of the error.
func (s *Server) body(w http.ResponseWriter, r *http.Request) (request, int, *gqlerror.Error) {
	var req request
	limit := s.limits.BodyBytes
	tooLong := refusal(&LimitError{Limit: limitBodyBytes, Allowed: limit,
		Message: fmt.Sprintf("the body is too long: at most %d bytes may be (%s)", limit, limitBodyBytes)})
	if r.ContentLength > limit {
		return req, http.StatusRequestEntityTooLarge, tooLong
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return req, http.StatusRequestEntityTooLarge, tooLong
	case err != nil:
		return req, http.StatusBadRequest, fault(codeMalformed, "the body ended before it was complete")
	case !utf8.Valid(body):
		return req, http.StatusBadRequest, fault(codeMalformed, "the body is not UTF-8")
	case bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")):
		return req, http.StatusBadRequest, refusal(&LimitError{Limit: limitBatch, Allowed: 1,
			Message: "one request holds one query: send a batch as several requests, or as several fields of one query"})
	}
	err = s.json.Decode(body, "", &req)
	var faults *strictjson.FaultsError
	switch {
	case errors.As(err, &faults):
		return req, http.StatusBadRequest, fault(codeBadRequest, "the body is not a GraphQL request: %s", faults.Error())
	case err != nil:
		return req, http.StatusBadRequest, fault(codeMalformed, "the body is not JSON: %s", err)
	}
	return req, http.StatusBadRequest, s.complete(&req)
}

// complete decodes the variables and refuses what is asked for by a hash.
func (s *Server) complete(req *request) *gqlerror.Error {
	if len(req.Variables) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(req.Variables))
		decoder.UseNumber()
		if err := decoder.Decode(&req.variables); err != nil || decoder.More() {
			return fault(codeBadRequest, "variables must be a JSON object of names and values")
		}
	}
	var extensions map[string]json.RawMessage
	if len(req.Extensions) > 0 && json.Unmarshal(req.Extensions, &extensions) != nil {
		return fault(codeBadRequest, "extensions must be a JSON object")
	}
	if _, persisted := extensions["persistedQuery"]; persisted && req.Query == "" {
		// The words that clients know as: send the query itself.
		return fault("PERSISTED_QUERY_NOT_SUPPORTED", "PersistedQueryNotSupported")
	}
	return nil
}

// serve executes a request and answers it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, media string, req request) {
	began := time.Now()
	a := s.execute(r.Context(), req)
	s.metrics.seconds.Observe(time.Since(began).Seconds())
	code := http.StatusOK
	if a.data == nil && media == mediaResponse {
		code = status(firstCode(a.errors))
	}
	if a.cost > 0 {
		w.Header().Set("X-Graphql-Cost", strconv.Itoa(a.cost))
	}
	s.write(w, media, code, a)
}

func firstCode(errs gqlerror.List) string {
	if len(errs) == 0 {
		return ""
	}
	return code(errs[0])
}

// write answers and counts the answer.
func (s *Server) write(w http.ResponseWriter, media string, code int, a answer) {
	s.metrics.observe(a)
	var body bytes.Buffer
	body.WriteByte('{')
	if len(a.errors) > 0 {
		body.WriteString(`"errors":`)
		enc := json.NewEncoder(&body)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(a.errors) // texts and numbers only: cannot fail
		if a.data != nil {
			body.WriteByte(',')
		}
	}
	if a.data != nil {
		body.WriteString(`"data":`)
		body.Write(a.data)
	}
	body.WriteString("}\n")
	h := w.Header()
	h.Set("Content-Type", media+"; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes()) // the caller may be gone: nobody to tell
}

// negotiate chooses the media type of the answer; without one it has answered.
func (s *Server) negotiate(w http.ResponseWriter, r *http.Request) (string, bool) {
	accepted := accepts(r.Header)
	if len(accepted) == 0 {
		return mediaJSON, true
	}
	for _, media := range accepted {
		switch media {
		case mediaResponse, mediaJSON:
			return media, true
		case "*/*", "application/*":
			return mediaJSON, true
		}
	}
	problem.Write(w, r, problem.NotAcceptable().With("answers are "+mediaResponse+" or "+mediaJSON))
	return "", false
}

// prefersHTML reports whether a browser asks for a page.
func prefersHTML(h http.Header) bool {
	for _, media := range accepts(h) {
		switch media {
		case "text/html", "application/xhtml+xml":
			return true
		case mediaJSON, mediaResponse:
			return false
		}
	}
	return false
}

// accepts lists the media types of the Accept header, best first.
func accepts(h http.Header) []string {
	type choice struct {
		media   string
		quality float64
	}
	var choices []choice
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, given := params["q"]; given {
			if q, err = strconv.ParseFloat(text, 64); err != nil || q <= 0 {
				continue
			}
		}
		choices = append(choices, choice{media, q})
	}
	slices.SortStableFunc(choices, func(a, b choice) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	out := make([]string, len(choices))
	for i, c := range choices {
		out[i] = c.media
	}
	return out
}
