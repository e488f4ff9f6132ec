package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Options returns the client options that every client of this package starts
// from: addresses, TLS, SASL, timeouts and logging. It validates the
// configuration and reads the certificate files.
func (c Config) Options() ([]kgo.Opt, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("kafka configuration: %w", err)
	}
	c = c.WithDefaults()
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("millrace", "1"),
		kgo.WithLogger(clientLogger{c.Logger}),
		// A moved leader or a topic that has just been created is found again
		// in half a second rather than five.
		kgo.MetadataMinAge(min(500*time.Millisecond, c.MetadataMaxAge)),
		kgo.MetadataMaxAge(c.MetadataMaxAge),
		kgo.DisableClientMetrics(),
	}
	if c.TLS.Enabled {
		config, err := c.TLS.load()
		if err != nil {
			return nil, err
		}
		dialer := &tlsDialer{net.Dialer{Timeout: c.DialTimeout}, config, c.Credentials}
		opts = append(opts, kgo.Dialer(dialer.dial))
	} else {
		opts = append(opts, kgo.Dialer((&net.Dialer{Timeout: c.DialTimeout}).DialContext))
	}
	if mechanism := c.mechanism(); mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// load reads the files that the settings name.
func (c TLSConfig) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kafka.tls.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka.tls.ca_file: %s holds no PEM certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("kafka.tls.cert_file: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}

// tlsDialer connects and shakes hands in one step, so that a certificate that
// is not trusted is the error of the dial and not an end of file later on.
type tlsDialer struct {
	net         net.Dialer
	config      *tls.Config
	credentials func() (Credentials, error)
}

func (d *tlsDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	config := d.config.Clone()
	if d.credentials != nil {
		credentials, err := ask(d.credentials)
		if err == nil {
			err = credentials.into(config)
		}
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", address, err)
		}
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", address, err)
		}
		config.ServerName = host
	}
	conn, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	encrypted := tls.Client(conn, config)
	ctx, cancel := context.WithTimeout(ctx, d.net.Timeout)
	defer cancel()
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, &handshakeError{address, err}
	}
	return encrypted, nil
}

// handshakeError: somebody is there, and TLS does not come about.
type handshakeError struct {
	address string
	err     error
}

func (e *handshakeError) Error() string {
	return fmt.Sprintf("TLS handshake with %s: %v", e.address, e.err)
}

func (e *handshakeError) Unwrap() error { return e.err }

// newClient makes a client from the shared options and those of its role.
func (c Config) newClient(role ...kgo.Opt) (*kgo.Client, error) {
	opts, err := c.Options()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, role...)...)
	if err != nil {
		return nil, fmt.Errorf("make kafka client: %w", err)
	}
	return client, nil
}

// clientLogger passes the client's own log on, one level lower than the client
// has it: what it calls an error is a request that it goes on to retry, and what
// cannot be retried reaches us as an error and is logged where it is handled.
type clientLogger struct{ log *slog.Logger }

func (l clientLogger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelError
}

func (l clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	if level == kgo.LogLevelError {
		to = slog.LevelInfo
	}
	l.log.Log(context.Background(), to, "kafka client", append([]any{"client_message", msg}, keyvals...)...)
}
