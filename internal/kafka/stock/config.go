package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/millrace/millrace/internal/kafka"
)

// newConfig translates the settings of the transport for sarama: addresses are
// passed beside it, everything else is in it.
func newConfig(cfg kafka.Config) (*sarama.Config, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("kafka configuration: %w", err)
	}
	c := sarama.NewConfig()
	c.ClientID = cfg.ClientID
	c.Version = sarama.V3_9_0_0 // the oldest that Millrace supports
	c.Net.DialTimeout = cfg.DialTimeout
	// A broker answers a member that joins when the others have, at the latest when
	// a silent one's session has ended.
	c.Net.ReadTimeout = cfg.SessionTimeout + 5*time.Second
	c.Net.WriteTimeout = cfg.DialTimeout
	// A topic that does not exist is an error. The default would create it, with
	// whatever settings the broker has for that.
	c.Metadata.AllowAutoTopicCreation = false
	c.Metadata.Timeout = cfg.DialTimeout
	if cfg.TLS.Enabled {
		config, err := cfg.TLS.Load()
		if err != nil {
			return nil, err
		}
		c.Net.TLS.Enable, c.Net.TLS.Config = true, config
	}
	authenticate(c, cfg.SASL)
	return c, nil
}

func authenticate(c *sarama.Config, s kafka.SASLConfig) {
	login := scram.Auth{User: s.Username, Pass: s.Password.Reveal()}
	switch s.Mechanism {
	case "":
		return
	case kafka.MechanismPlain:
		c.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	case kafka.MechanismScramSHA256:
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{by: login.AsSha256Mechanism()} }
	case kafka.MechanismScramSHA512:
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{by: login.AsSha512Mechanism()} }
	case kafka.MechanismOAuthBearer:
		c.Net.SASL.Mechanism = sarama.SASLTypeOAuth
		c.Net.SASL.TokenProvider = bearer{s}
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.Version = sarama.SASLHandshakeV1
	c.Net.SASL.User, c.Net.SASL.Password = s.Username, s.Password.Reveal()
}

// bearer hands out the token as it stands at the moment.
type bearer struct{ settings kafka.SASLConfig }

// Token implements sarama.AccessTokenProvider.
func (b bearer) Token() (*sarama.AccessToken, error) {
	token, err := b.settings.ReadToken()
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, errors.New("kafka.sasl.token_file: the file is empty")
	}
	return &sarama.AccessToken{Token: token}, nil
}

// conversation lets sarama, which has no SCRAM of its own, use the one of franz-go.
type conversation struct {
	by      sasl.Mechanism
	session sasl.Session
	first   []byte
	done    bool
}

// Begin implements sarama.SCRAMClient. Who logs in is known to the mechanism.
func (c *conversation) Begin(_, _, _ string) (err error) {
	c.session, c.first, err = c.by.Authenticate(context.Background(), "")
	return err
}

// Step implements sarama.SCRAMClient. It is called first without a challenge.
func (c *conversation) Step(challenge string) (string, error) {
	if c.first != nil {
		first := c.first
		c.first = nil
		return string(first), nil
	}
	done, answer, err := c.session.Challenge([]byte(challenge))
	c.done = done
	return string(answer), err
}

// Done implements sarama.SCRAMClient.
func (c *conversation) Done() bool { return c.done }

// consumerConfig is for the members of groups and for the reader of records.
func consumerConfig(cfg kafka.Config, sc kafka.SubscriberConfig) (*sarama.Config, error) {
	c, err := newConfig(cfg)
	if err != nil {
		return nil, err
	}
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = cfg.FetchMaxWait
	c.Consumer.Group.Session.Timeout = cfg.SessionTimeout
	c.Consumer.Group.Heartbeat.Interval = cfg.HeartbeatInterval
	c.Consumer.Group.Rebalance.Timeout = cfg.RebalanceTimeout
	c.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	// Partitions that stay with their owner are not interrupted by a member that
	// joins or leaves; and the name is that of the other driver's protocol.
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	// What stock code has marked, which is what was acked, and nothing else.
	c.Consumer.Offsets.AutoCommit.Enable = true
	c.Consumer.Offsets.AutoCommit.Interval = sc.CommitInterval
	// These two are about the claims, from which no record is taken: a claim must
	// come into being also where the group's offset is not in the log, or one such
	// partition would end the session over and over. Where records are read from is
	// the worker's to say, and it knows no reset.
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.ResetInvalidOffsets = true
	return c, nil
}
