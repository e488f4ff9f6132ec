package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds what is read of one answer.
const maxAnswer = 256 << 20

// NewREST returns a client of the engine's REST interface, for example at
// "http://localhost:8080". It connects when it is used.
func NewREST(baseURL string, opts ...Option) (EngineClient, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("engine's address: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("engine's address %q: give it as http://host:port or https://host:port", baseURL)
	}
	o := newOptions(opts)
	c := &restClient{base: strings.TrimRight(base.String(), "/"), token: o.token, userAgent: o.userAgent, http: o.httpClient}
	if c.http == nil {
		// Every worker of a process may have a poll and many reports under way; the
		// default of two idle connections would open one for nearly every call.
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
		transport.TLSClientConfig = o.tls
		c.http = &http.Client{Transport: transport}
	}
	return c, nil
}

type restClient struct {
	base, token, userAgent string
	http                   *http.Client
}

func (c *restClient) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// call sends a request and decodes the answer into out unless that is nil.
func (c *restClient) call(ctx context.Context, op, method, path string, in, out any) error {
	var body io.Reader
	if raw, isRaw := in.(json.RawMessage); isRaw {
		body = bytes.NewReader(raw)
	} else if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return &Error{Op: op, Kind: ErrInvalid, Cause: err}
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return &Error{Op: op, Kind: ErrInvalid, Cause: err}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", c.userAgent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return lost(op, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return lost(op, err)
	}
	if resp.StatusCode >= 300 {
		return refused(op, resp, answer)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent || len(bytes.TrimSpace(answer)) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &Error{Op: op, Kind: ErrUnavailable, Message: "the answer is not what this call answers; is this the address of an engine?", Cause: err}
	}
	return nil
}

// lost is the error of a call without an answer. What the caller called off is not
// dressed up as a fault of the network.
func lost(op string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return &Error{Op: op, Kind: ErrUnavailable, Cause: err}
}

// refused makes an error of an answer. Both shapes of error bodies are read: problem
// details (RFC 9457), and the pair of error and message.
func refused(op string, resp *http.Response, answer []byte) error {
	var body struct {
		Code, Error, Message, Title, Detail string
		Errors                              []restFault
	}
	if json.Unmarshal(answer, &body) != nil {
		body.Detail = strings.TrimSpace(string(answer[:min(len(answer), 300)]))
	}
	e := &Error{Op: op, Kind: kindOf(resp.StatusCode), Code: first(body.Code, body.Error), Message: first(body.Detail, body.Message, body.Title, resp.Status)}
	faults := make([]string, len(body.Errors))
	for i, fault := range body.Errors {
		faults[i] = fault.String()
	}
	e.Message = withFaults(e.Message, faults)
	// A route that is not there has no body of the engine's: the engine is an older one.
	if (resp.StatusCode == http.StatusNotFound && e.Code == "") || resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusNotImplemented {
		e.Kind = ErrUnsupported
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// restFault is one thing that is wrong with a request, or with a definition.
type restFault struct {
	Pointer, Path, Message, Detail string
	Line                           int
}

func (f restFault) String() string {
	text := first(f.Message, f.Detail)
	if f.Line > 0 {
		return fmt.Sprintf("line %d: %s", f.Line, text)
	}
	if place := first(f.Pointer, f.Path); place != "" {
		return place + ": " + text
	}
	return text
}

func kindOf(status int) error {
	switch status {
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return ErrConflict
	case http.StatusGone:
		return ErrPollingDisabled
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrDenied
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return ErrUnavailable
	}
	if status >= 500 {
		return ErrUnavailable
	}
	return ErrInvalid
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
