package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Trouble says what kind of thing stands between a client and its records, for those who
// have to tell people what to do about it.
type Trouble string

// The kinds of trouble.
const (
	// TroubleUnreachable: no connection, or nobody answers.
	TroubleUnreachable Trouble = "unreachable"
	// TroubleClosed: a broker closes connections before it has answered anything.
	TroubleClosed Trouble = "closed"
	// TroubleTLS: one side speaks TLS and the other does not, or a certificate is not
	// accepted.
	TroubleTLS Trouble = "tls"
	// TroubleAuthentication: the brokers do not accept the credentials, or want some.
	TroubleAuthentication Trouble = "authentication"
	// TroubleCredentials: our own secrets cannot be read.
	TroubleCredentials Trouble = "credentials"
	// TroubleAuthorization: the account may not do it.
	TroubleAuthorization Trouble = "authorization"
	// TroubleTopicMissing: there is no such topic.
	TroubleTopicMissing Trouble = "topic_missing"
	// TroubleTopicReplaced: the topic was deleted, and perhaps created again.
	TroubleTopicReplaced Trouble = "topic_replaced"
	// TroubleOffset: what is to be read next is no longer in the log.
	TroubleOffset Trouble = "offset"
	// TroubleRecords: what is to be read next cannot be read.
	TroubleRecords Trouble = "records"
	// TroubleFenced: somebody else has taken this member's name in the group.
	TroubleFenced Trouble = "fenced"
	// TroubleGroup: the group cannot take this member in: others in it speak another
	// protocol, or it is full, or its name is not allowed.
	TroubleGroup Trouble = "group"
	// TroubleBroker is whatever else a broker answers.
	TroubleBroker Trouble = "broker"
	// TroubleOther is none of the above.
	TroubleOther Trouble = "other"
)

// answers are errors by the trouble that each means, those first that tell most.
func answers() []answer {
	return []answer{
		{TroubleCredentials, []error{ErrCredentials}},
		{TroubleAuthentication, []error{kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState}},
		{TroubleAuthorization, []error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed}},
		{TroubleTopicReplaced, []error{ErrTopicReplaced, kerr.UnknownTopicID, kerr.InconsistentTopicID}},
		{TroubleTopicMissing, []error{kerr.UnknownTopicOrPartition, kerr.InvalidTopicException}},
		{TroubleOffset, []error{kerr.OffsetOutOfRange}},
		{TroubleRecords, []error{kerr.CorruptMessage, kerr.InvalidRecord, kerr.UnsupportedCompressionType}},
		{TroubleFenced, []error{kerr.FencedInstanceID, kerr.UnreleasedInstanceID}},
		{TroubleGroup, []error{
			kerr.InconsistentGroupProtocol, kerr.GroupMaxSizeReached, kerr.InvalidGroupID, kerr.InvalidSessionTimeout,
		}},
		{TroubleUnreachable, []error{kerr.CoordinatorNotAvailable, kerr.BrokerNotAvailable, context.DeadlineExceeded}},
	}
}

type answer struct {
	trouble Trouble
	errs    []error
}

// TroubleOf says what kind of trouble err is, empty for nil.
func TroubleOf(err error) Trouble {
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*OutOfRangeError](err); ok {
		return TroubleOffset
	}
	if _, ok := errors.AsType[*kgo.ErrDataLoss](err); ok {
		return TroubleOffset
	}
	if _, ok := errors.AsType[*kgo.ErrDecompressTooLarge](err); ok {
		return TroubleRecords
	}
	if hungUp, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); ok {
		// The client guesses what the broker misses, and says so.
		if strings.Contains(hungUp.Error(), "SASL") {
			return TroubleAuthentication
		}
		return TroubleTLS
	}
	if isTLS(err) {
		return TroubleTLS
	}
	for _, a := range answers() {
		for _, one := range a.errs {
			if errors.Is(err, one) {
				return a.trouble
			}
		}
	}
	if _, ok := errors.AsType[*kerr.Error](err); ok {
		return TroubleBroker
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return TroubleClosed
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return TroubleUnreachable
	}
	return TroubleOther
}

// isTLS reports whether a connection failed because of TLS.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*handshakeError](err); ok {
		return true
	}
	// What a broker of TLS 1.3 thinks of our certificate comes after the handshake.
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error"
}
