package kafka_test

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/kafka/kafkatest"
	"github.com/millrace/millrace/internal/secret"
)

// credentialsOf reads the files of an authority's client.
func credentialsOf(t *testing.T, files kafka.TLSConfig) kafka.Credentials {
	t.Helper()
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		return content
	}
	return kafka.Credentials{CA: read(files.CAFile), Cert: read(files.CertFile), Key: read(files.KeyFile)}
}

// Credentials in memory are asked for with every connection, so that a client whose
// secrets were wrong, or could not be read, needs to be told nothing when they are mended.
func TestCredentialsAreAskedForEveryTime(t *testing.T) {
	t.Parallel()
	authority := kafkatest.NewAuthority(t)
	for _, mechanism := range []string{kafka.MechanismPlain, kafka.MechanismScramSHA256, kafka.MechanismScramSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, kfake.TLS(authority.Server), kfake.EnableSASL(), kfake.Superuser(mechanism, "user", "pass"))
			right := credentialsOf(t, authority.Client)
			right.Password = secret.New("pass")
			unreadable := errors.New("the variable is not set")
			var now atomic.Pointer[kafka.Credentials]
			f.cfg.TLS = kafka.TLSConfig{Enabled: true}
			f.cfg.SASL = kafka.SASLConfig{Mechanism: mechanism, Username: "user"}
			f.cfg.Credentials = func() (kafka.Credentials, error) {
				if c := now.Load(); c != nil {
					return *c, nil
				}
				return kafka.Credentials{}, unreadable
			}
			admin, err := kafka.NewAdmin(f.cfg)
			require.NoError(t, err)
			defer admin.Close()
			err = admin.Ping(t.Context())
			require.ErrorIs(t, err, unreadable)
			require.Equal(t, kafka.TroubleCredentials, kafka.TroubleOf(err))
			for name, step := range map[string]struct {
				change func(*kafka.Credentials)
				want   kafka.Trouble
			}{
				"no PEM":             {func(c *kafka.Credentials) { c.CA = []byte("x") }, kafka.TroubleCredentials},
				"half a certificate": {func(c *kafka.Credentials) { c.Key = nil }, kafka.TroubleCredentials},
				"no password":        {func(c *kafka.Credentials) { c.Password = secret.Secret{} }, kafka.TroubleCredentials},
				"wrong password":     {func(c *kafka.Credentials) { c.Password = secret.New("canary") }, kafka.TroubleClosed},
				"another authority":  {func(c *kafka.Credentials) { c.CA = credentialsOf(t, kafkatest.NewAuthority(t).Client).CA }, kafka.TroubleTLS},
				"no certificate":     {func(c *kafka.Credentials) { c.Cert, c.Key = nil, nil }, kafka.TroubleTLS},
			} {
				wrong := right
				step.change(&wrong)
				now.Store(&wrong)
				err := admin.Ping(t.Context())
				require.Error(t, err, name)
				assert.Equal(t, step.want, kafka.TroubleOf(err), "%s: %v", name, err)
				assert.NotContains(t, err.Error(), "canary")
			}
			now.Store(&right)
			require.NoError(t, admin.Ping(t.Context()))
			requireEverything(t, f)
		})
	}
}

func TestTroubleOfConnections(t *testing.T) {
	t.Parallel()
	authority := kafkatest.NewAuthority(t)
	encrypted, clear := newFake(t, kfake.TLS(authority.Server)), newFake(t)
	picky := newFake(t, kfake.EnableSASL(), kfake.Superuser(kafka.MechanismPlain, "user", "pass"))
	nobody, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	for name, test := range map[string]struct {
		cfg  kafka.Config
		want kafka.Trouble
	}{
		"fine":                      {kafka.Config{Brokers: clear.cfg.Brokers}, ""},
		"nobody there":              {kafka.Config{Brokers: []string{nobody.Addr().String()}}, kafka.TroubleUnreachable},
		"no such host":              {kafka.Config{Brokers: []string{"no-such-host.invalid:9092"}}, kafka.TroubleUnreachable},
		"no TLS where it is wanted": {kafka.Config{Brokers: encrypted.cfg.Brokers}, kafka.TroubleTLS},
		"TLS where there is none": {kafka.Config{
			Brokers: clear.cfg.Brokers, TLS: authority.Client, DialTimeout: 200 * time.Millisecond, // nobody answers
		}, kafka.TroubleTLS},
		"no SASL where it is wanted": {kafka.Config{Brokers: picky.cfg.Brokers}, kafka.TroubleAuthentication},
		"another mechanism": {kafka.Config{Brokers: picky.cfg.Brokers, SASL: kafka.SASLConfig{
			Mechanism: kafka.MechanismScramSHA256, Username: "user", Password: secret.New("pass"),
		}}, kafka.TroubleClosed}, // the embedded broker hangs up where Kafka would say why
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := ping(t, test.cfg)
			assert.Equal(t, test.want, kafka.TroubleOf(err), "%v", err)
		})
	}
}

// What Kafka answers to credentials that it does not know.
func TestTroubleOfARefusedLogin(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.EnableSASL(), kfake.Superuser(kafka.MechanismPlain, "user", "pass"))
	f.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	f.cfg.SASL = kafka.SASLConfig{Mechanism: kafka.MechanismPlain, Username: "user", Password: secret.New("canary")}
	err := ping(t, f.cfg)
	assert.Equal(t, kafka.TroubleAuthentication, kafka.TroubleOf(err), "%v", err)
}

func TestTroubleOfAnswers(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]kafka.Trouble{
		kerr.TopicAuthorizationFailed:                         kafka.TroubleAuthorization,
		kerr.GroupAuthorizationFailed:                         kafka.TroubleAuthorization,
		kerr.UnknownTopicOrPartition:                          kafka.TroubleTopicMissing,
		kafka.ErrTopicReplaced:                                kafka.TroubleTopicReplaced,
		&kafka.OutOfRangeError{Err: kerr.OffsetOutOfRange}:    kafka.TroubleOffset,
		kerr.InconsistentGroupProtocol:                        kafka.TroubleGroup,
		kerr.FencedInstanceID:                                 kafka.TroubleFenced,
		kerr.NotLeaderForPartition:                            kafka.TroubleBroker,
		errors.New("something else"):                          kafka.TroubleOther,
		errors.Join(errors.New("x"), kerr.CorruptMessage):     kafka.TroubleRecords,
		&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}: kafka.TroubleUnreachable,
	} {
		assert.Equal(t, want, kafka.TroubleOf(err), "%v", err)
	}
}
