package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// ErrCredentials is what an error wraps when Config.Credentials failed, or returned what
// cannot be used.
var ErrCredentials = errors.New("kafka: credentials")

// ask returns the credentials as they stand now.
func ask(credentials func() (Credentials, error)) (Credentials, error) {
	c, err := credentials()
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	return c, nil
}

// into puts the certificates into a configuration that nobody else has.
func (c Credentials) into(config *tls.Config) error {
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CA) {
			return fmt.Errorf("%w: the CA holds no PEM certificate", ErrCredentials)
		}
	}
	if len(c.Cert) == 0 && len(c.Key) == 0 {
		return nil
	}
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return fmt.Errorf("%w: client certificate: %w", ErrCredentials, err)
	}
	config.GetClientCertificate = nil
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// login returns user and password as they stand now.
func (c Config) login() (user, password string, err error) {
	if c.Credentials == nil || !c.SASL.Password.IsZero() {
		return c.SASL.Username, c.SASL.Password.Reveal(), nil
	}
	credentials, err := ask(c.Credentials)
	if err == nil && credentials.Password.IsZero() {
		err = fmt.Errorf("%w: the password is empty", ErrCredentials)
	}
	return c.SASL.Username, credentials.Password.Reveal(), err
}

// token returns the bearer token as it stands now.
func (c Config) token() (string, error) {
	if c.Credentials == nil || !c.SASL.Token.IsZero() || c.SASL.TokenFile != "" {
		token, err := c.SASL.readToken()
		if err == nil && token == "" {
			err = errors.New("kafka.sasl.token_file: the file is empty")
		}
		return token, err
	}
	credentials, err := ask(c.Credentials)
	if err == nil && credentials.Token.IsZero() {
		err = fmt.Errorf("%w: the token is empty", ErrCredentials)
	}
	return credentials.Token.Reveal(), err
}

// mechanism returns how connections are authenticated, nil for not at all. Every
// authentication asks anew for what may have changed.
func (c Config) mechanism() sasl.Mechanism {
	scramLogin := func(context.Context) (scram.Auth, error) {
		user, password, err := c.login()
		return scram.Auth{User: user, Pass: password}, err
	}
	switch c.SASL.Mechanism {
	case MechanismPlain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			user, password, err := c.login()
			return plain.Auth{User: user, Pass: password}, err
		})
	case MechanismScramSHA256:
		return scram.Sha256(scramLogin)
	case MechanismScramSHA512:
		return scram.Sha512(scramLogin)
	case MechanismOAuthBearer:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := c.token()
			return oauth.Auth{Token: token}, err
		})
	default:
		return nil
	}
}
