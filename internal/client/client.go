package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/secret"
)

// Defaults of Options.
const (
	TimeoutDefault = 30 * time.Second
	URLDefault     = "http://127.0.0.1:8080"
)

// maxAnswer bounds the JSON answers that are read: far above what a page holds.
const maxAnswer = 64 << 20

// Options say where the API is and how to call it.
type Options struct {
	// URL is the base address, such as "https://millrace.example.org". Defaults
	// to URLDefault.
	URL string
	// Token is the bearer token. Empty sends none.
	Token secret.Secret
	// HTTP makes the calls. It must not have a timeout of its own, which would
	// end streams. Defaults to a client with a transport of its own.
	HTTP *http.Client
	// Timeout bounds each call but streams and outputs. Defaults to TimeoutDefault.
	Timeout time.Duration
	// UserAgent names the caller. Defaults to "millrace-client".
	UserAgent string
}

// Client calls one API. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	options Options
	watch   watchTimes
}

// New returns a client. It does no I/O; the error is about the URL.
func New(o Options) (*Client, error) {
	o.URL = cmp.Or(o.URL, URLDefault)
	o.Timeout = cmp.Or(o.Timeout, TimeoutDefault)
	o.UserAgent = cmp.Or(o.UserAgent, "millrace-client")
	base, err := parseBase(o.URL)
	if err != nil {
		return nil, err
	}
	if o.HTTP == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.ResponseHeaderTimeout = o.Timeout
		o.HTTP = &http.Client{Transport: transport, CheckRedirect: keepToken}
	}
	return &Client{base: base, options: o, watch: defaultWatchTimes()}, nil
}

// parseBase accepts "host:port" too, and a path in front of /v1.
func parseBase(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || base.User != nil || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("address of the API: want http://host:port or https://host:port, without user and password")
	}
	base.Path = strings.TrimSuffix(strings.TrimSuffix(base.Path, "/"), "/v1")
	base.RawQuery, base.Fragment = "", ""
	return base, nil
}

// keepToken refuses redirects to another host: what answers there is not what the
// token is for.
func keepToken(to *http.Request, via []*http.Request) error {
	if len(via) >= 10 || to.URL.Host != via[0].URL.Host || via[0].URL.Scheme == "https" && to.URL.Scheme != "https" {
		return http.ErrUseLastResponse
	}
	return nil
}

// URL returns the base address.
func (c *Client) URL() string { return c.base.String() }

// Close drops idle connections.
func (c *Client) Close() { c.options.HTTP.CloseIdleConnections() }

// call is one request.
type call struct {
	method string
	path   []string // segments behind /v1
	root   bool     // there is no /v1 before the path
	query  url.Values
	body   any
	header http.Header
}

// written is a body that is JSON already, and is sent as it is.
type written []byte

func (c *Client) request(ctx context.Context, k call) (*http.Request, error) {
	var body io.Reader
	if k.body != nil {
		encoded, ready := k.body.(written)
		if !ready {
			var err error
			if encoded, err = json.Marshal(k.body); err != nil {
				return nil, fmt.Errorf("encode request: %w", err)
			}
		}
		body = bytes.NewReader(encoded)
	}
	prefix := []string{"v1"}
	if k.root {
		prefix = nil
	}
	target := c.base.JoinPath(append(prefix, escapeAll(k.path)...)...)
	target.RawQuery = k.query.Encode()
	req, err := http.NewRequestWithContext(ctx, k.method, target.String(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, application/problem+json")
	}
	req.Header.Set("User-Agent", c.options.UserAgent)
	if !c.options.Token.IsZero() {
		req.Header.Set("Authorization", "Bearer "+c.options.Token.Reveal())
	}
	return req, nil
}

// escapeAll makes path segments of texts: an id with a slash stays one segment,
// and dots are not taken for the parent.
func escapeAll(segments []string) []string {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		escaped[i] = strings.ReplaceAll(url.PathEscape(s), ".", "%2E")
	}
	return escaped
}

// open makes the call and returns the response, whose body the caller closes. An
// answer that is not a success is returned as an error.
func (c *Client) open(ctx context.Context, k call) (*http.Response, error) {
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, err
	}
	resp, err := c.options.HTTP.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, readProblem(resp)
}

// unreachable tells a server that is not there from a caller that gave up.
func (c *Client) unreachable(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the rest repeats method and URL
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return ctx.Err()
	}
	return &UnreachableError{URL: c.URL(), Err: err}
}

// do makes the call and decodes the answer into out, which may be nil.
func (c *Client) do(ctx context.Context, k call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	resp, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("decode the answer of %s: %w: is this the API of Millrace?", c.URL(), err)
	}
	return nil
}
