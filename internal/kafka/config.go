package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/secret"
)

// SASL mechanisms that SASLConfig.Mechanism may name. The empty string means
// that connections are not authenticated.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
	MechanismOAuthBearer = "OAUTHBEARER"
)

// Config says how to reach the brokers. One Config serves every client of a
// process, so that no connection escapes its TLS and SASL settings.
type Config struct {
	// Brokers are the addresses to start from, as host:port. At least one.
	Brokers []string `koanf:"brokers"`
	// ClientID is what brokers log and meter by. Defaults to "millrace".
	ClientID string     `koanf:"client_id"`
	TLS      TLSConfig  `koanf:"tls"`
	SASL     SASLConfig `koanf:"sasl"`
	// Credentials, where it is set, is asked for every connection, for what TLS and
	// SASL then do not name: so a secret that is renewed needs no new client. What it
	// returns is ErrCredentials wherever it turns up.
	Credentials func() (Credentials, error) `koanf:"-" json:"-"`
	// DialTimeout bounds one attempt to connect. Defaults to 10 seconds.
	DialTimeout time.Duration `koanf:"dial_timeout"`
	// SessionTimeout is how long the group waits for a silent member before it
	// gives its partitions away. Brokers accept 6 seconds to 30 minutes unless
	// configured otherwise. Defaults to 15 seconds.
	SessionTimeout time.Duration `koanf:"session_timeout"`
	// HeartbeatInterval is how often a member reports, and so how soon it
	// learns of a rebalance. At most a third of SessionTimeout. Defaults to 1
	// second.
	HeartbeatInterval time.Duration `koanf:"heartbeat_interval"`
	// RebalanceTimeout is how long a member may take to give up what was
	// revoked. It must be longer than every DrainTimeout. Defaults to 60
	// seconds.
	RebalanceTimeout time.Duration `koanf:"rebalance_timeout"`
	// FetchMaxWait is how long a broker may hold a fetch that finds nothing. It
	// also bounds how long a partition that resumes can wait behind a fetch
	// that does not ask for it. Defaults to 250 milliseconds.
	FetchMaxWait time.Duration `koanf:"fetch_max_wait"`
	// MetadataMaxAge is how old what a client knows of topics may get, and so how soon
	// it learns that a topic has grown: its records in new partitions wait until then.
	// Defaults to 30 seconds.
	MetadataMaxAge time.Duration `koanf:"metadata_max_age"`
	// Logger receives what the client has to say. Defaults to slog.Default().
	Logger *slog.Logger `koanf:"-"`
}

// Credentials are secrets in memory rather than in files.
type Credentials struct {
	// CA, Cert and Key are PEM: what to trust, and who we are. Each takes the place of
	// the file of that name; Cert and Key go together.
	CA, Cert, Key []byte
	// Password is for PLAIN and SCRAM, Token for OAUTHBEARER.
	Password, Token secret.Secret
}

// TLSConfig says how connections are encrypted.
type TLSConfig struct {
	// Enabled turns TLS on; the other fields are refused without it.
	Enabled bool `koanf:"enabled"`
	// CAFile holds the PEM certificates to trust. Empty trusts the system's.
	CAFile string `koanf:"ca_file"`
	// CertFile and KeyFile hold the client's PEM certificate and key. Both or
	// neither. They are read again for every handshake, so that a renewed
	// certificate needs no restart.
	CertFile string `koanf:"cert_file"`
	KeyFile  string `koanf:"key_file"`
	// ServerName is the name the broker's certificate must carry. Empty means
	// the host of the broker's address.
	ServerName string `koanf:"server_name"`
}

// SASLConfig says how connections are authenticated.
type SASLConfig struct {
	// Mechanism is one of the Mechanism constants, or empty for none.
	Mechanism string `koanf:"mechanism"`
	// Username and Password are for PLAIN and SCRAM.
	Username string        `koanf:"username"`
	Password secret.Secret `koanf:"password"`
	// Token, or the content of TokenFile, is for OAUTHBEARER. The file is read
	// again for every authentication, so that a rotated token needs no restart.
	Token     secret.Secret `koanf:"token"`
	TokenFile string        `koanf:"token_file"`
}

// WithDefaults returns a copy in which every field that was left out has its
// default.
func (c Config) WithDefaults() Config {
	c.Brokers = slices.Clone(c.Brokers)
	c.ClientID = cmp.Or(c.ClientID, "millrace")
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 15*time.Second)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, time.Second)
	c.RebalanceTimeout = cmp.Or(c.RebalanceTimeout, time.Minute)
	c.FetchMaxWait = cmp.Or(c.FetchMaxWait, 250*time.Millisecond)
	c.MetadataMaxAge = cmp.Or(c.MetadataMaxAge, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Validate reports every fault of the configuration at once, each with the path
// of the setting. It reads no file.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if len(c.Brokers) == 0 {
		fault("kafka.brokers: at least one host:port is required")
	}
	for i, address := range c.Brokers {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || port == "" {
			fault("kafka.brokers[%d]: %q is not host:port", i, address)
		}
	}
	for path, d := range map[string]time.Duration{
		"kafka.dial_timeout": c.DialTimeout, "kafka.session_timeout": c.SessionTimeout,
		"kafka.heartbeat_interval": c.HeartbeatInterval, "kafka.rebalance_timeout": c.RebalanceTimeout,
		"kafka.fetch_max_wait": c.FetchMaxWait, "kafka.metadata_max_age": c.MetadataMaxAge,
	} {
		if d < 0 {
			fault("%s: %s is negative", path, d)
		}
	}
	if c.HeartbeatInterval*3 > c.SessionTimeout {
		fault("kafka.heartbeat_interval: %s is more than a third of kafka.session_timeout (%s)", c.HeartbeatInterval, c.SessionTimeout)
	}
	faults = append(faults, c.TLS.faults()...)
	faults = append(faults, c.SASL.faults(c.Credentials != nil)...)
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

func (c TLSConfig) faults() []error {
	var faults []error
	if !c.Enabled {
		for _, f := range []struct{ path, value string }{
			{"ca_file", c.CAFile}, {"cert_file", c.CertFile}, {"key_file", c.KeyFile}, {"server_name", c.ServerName},
		} {
			if f.value != "" {
				// Silently connecting in the clear is the worst reading of
				// such a configuration.
				faults = append(faults, fmt.Errorf("kafka.tls.%s: set, but kafka.tls.enabled is false", f.path))
			}
		}
		return faults
	}
	if c.CertFile != "" && c.KeyFile == "" {
		faults = append(faults, errors.New("kafka.tls.key_file: required with kafka.tls.cert_file"))
	}
	if c.KeyFile != "" && c.CertFile == "" {
		faults = append(faults, errors.New("kafka.tls.cert_file: required with kafka.tls.key_file"))
	}
	return faults
}

// faults are those of c. Where the secrets are asked for they need not be here.
func (c SASLConfig) faults(asked bool) []error {
	var faults []error
	need := func(path, value string) {
		if value == "" && (path == "username" || !asked) {
			faults = append(faults, fmt.Errorf("kafka.sasl.%s: required by mechanism %s", path, c.Mechanism))
		}
	}
	refuse := func(path, value string) {
		if value != "" {
			faults = append(faults, fmt.Errorf("kafka.sasl.%s: not used by mechanism %q", path, c.Mechanism))
		}
	}
	switch c.Mechanism {
	case "":
		refuse("username", c.Username)
		refuse("password", c.Password.String())
		refuse("token", c.Token.String())
		refuse("token_file", c.TokenFile)
	case MechanismPlain, MechanismScramSHA256, MechanismScramSHA512:
		need("username", c.Username)
		need("password", c.Password.String())
		refuse("token", c.Token.String())
		refuse("token_file", c.TokenFile)
	case MechanismOAuthBearer:
		refuse("username", c.Username)
		refuse("password", c.Password.String())
		switch {
		case asked && c.Token.IsZero() && c.TokenFile == "":
		case c.Token.IsZero() && c.TokenFile == "":
			faults = append(faults, errors.New("kafka.sasl.token: this or kafka.sasl.token_file is required by mechanism OAUTHBEARER"))
		case !c.Token.IsZero() && c.TokenFile != "":
			faults = append(faults, errors.New("kafka.sasl.token: set together with kafka.sasl.token_file"))
		}
	default:
		faults = append(faults, fmt.Errorf("kafka.sasl.mechanism: %q is none of %s, %s, %s, %s", c.Mechanism,
			MechanismPlain, MechanismScramSHA256, MechanismScramSHA512, MechanismOAuthBearer))
	}
	return faults
}

// readToken returns the bearer token as it stands now.
func (c SASLConfig) readToken() (string, error) {
	if c.TokenFile == "" {
		return c.Token.Reveal(), nil
	}
	content, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("kafka.sasl.token_file: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}
