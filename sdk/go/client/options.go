package client

import (
	"crypto/tls"
	"net/http"

	"google.golang.org/grpc"
)

// Option changes how a client connects.
type Option func(*options)

type options struct {
	token      string
	tls        *tls.Config
	httpClient *http.Client
	userAgent  string
	dial       []grpc.DialOption
}

const defaultUserAgent = "millrace-sdk-go"

func newOptions(opts []Option) options {
	o := options{userAgent: defaultUserAgent}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithToken sends a bearer token with every call.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithTLS connects with TLS. Over REST it is what an https URL is dialled with; over gRPC
// it replaces the default, which is plain text.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }

// WithHTTPClient takes the place of the HTTP client that NewREST makes, and of WithTLS.
// Its Timeout has to be longer than the wait of a long poll.
func WithHTTPClient(c *http.Client) Option { return func(o *options) { o.httpClient = c } }

// WithUserAgent says who calls; default: millrace-sdk-go.
func WithUserAgent(name string) Option { return func(o *options) { o.userAgent = name } }

// WithDialOptions are handed on to grpc.NewClient, after those of this package.
func WithDialOptions(opts ...grpc.DialOption) Option {
	return func(o *options) { o.dial = append(o.dial, opts...) }
}
