package kafkasource

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/internal/trigger/secrets"
)

// words are what people are told of a trouble.
type words struct{ code, message, hint string }

// troubles returns the words by kind; messages go before the error's own text.
func troubles() map[kafka.Trouble]words {
	return map[kafka.Trouble]words{
		kafka.TroubleUnreachable: {
			"broker_unreachable", "The brokers cannot be reached",
			"Check that they run, that kafka.brokers names them, and that this host may connect to the addresses that they advertise.",
		},
		kafka.TroubleClosed: {
			"connection_closed", "The brokers close the connection",
			"They may be about to stop. If it lasts, check whether kafka.tls and kafka.sasl are what that port expects.",
		},
		kafka.TroubleTLS: {
			"tls_failed", "TLS with the brokers failed",
			"Check kafka.tls: whether the port speaks TLS at all, whether ca is what signed the broker's certificate, server_name what it is for, and cert and key what the broker wants.",
		},
		kafka.TroubleAuthentication: {
			"authentication_failed", "The brokers do not accept the credentials",
			"Check kafka.sasl: mechanism, username, and what the password or token refers to. A secret that is renewed is read again with the next try.",
		},
		kafka.TroubleCredentials: {
			"secret_unavailable", "A secret cannot be read",
			"Set the variable, or mount the file, that the definition refers to, on every process with the role triggers.",
		},
		kafka.TroubleAuthorization: {
			"not_authorized", "The account may not read the topics, or not in this group",
			"Grant it READ and DESCRIBE on the topics, and READ on the group.",
		},
		kafka.TroubleTopicMissing: {
			"topic_missing", "A topic does not exist",
			"Create it, or apply the trigger without it. Topics are never created here.",
		},
		kafka.TroubleTopicReplaced: {
			"topic_recreated", "The topic was deleted and created again",
			"Nothing needs to be done: it is taken up anew, from its first message.",
		},
		kafka.TroubleOffset: {
			"offset_out_of_range", "The next message is no longer in the log",
			"Messages were removed before they were read: nothing is skipped on its own. Raise retention.ms of the topic. To go on, disable the trigger, set the group's offset with kafka-consumer-groups.sh --reset-offsets, and enable it.",
		},
		kafka.TroubleRecords: {
			"unreadable", "The next message cannot be read",
			"The broker's log, or what its producer has written, is damaged. To go on behind it, disable the trigger, set the group's offset with kafka-consumer-groups.sh --reset-offsets, and enable it.",
		},
		kafka.TroubleFenced: {
			"replaced", "Another process has taken this member over",
			"Nothing needs to be done if the trigger was moved. Otherwise another installation runs a trigger of the same uid in the same group.",
		},
		kafka.TroubleGroup: {
			"group_refused", "The group does not take the trigger in",
			"Its other members must share the protocol cooperative-sticky, or be stopped; or apply another trigger with a group of its own.",
		},
		kafka.TroubleBroker: {
			"broker_error", "A broker reports an error",
			"It is tried again. If it lasts, look at the broker's log.",
		},
		kafka.TroubleOther: {"kafka", "Reading from Kafka failed", "It is tried again."},
	}
}

// troubleCause says what an error of the transport means.
func troubleCause(err error) *trigger.Cause {
	if unread, ok := errors.AsType[*secrets.Error](err); ok {
		c := unread.Cause()
		return &c
	}
	w := troubles()[kafka.TroubleOf(err)]
	return &trigger.Cause{Code: w.code, Message: w.message + ": " + text(err), Hint: w.hint}
}

// text is an error in a line, without what looks like a secret.
func text(err error) string {
	return secret.Redact(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// own has hints name the installation's settings where the trigger has no brokers of its
// own.
func own(t *trigger.Compiled, c *trigger.Cause) *trigger.Cause {
	if len(t.Kafka.Brokers) == 0 {
		c.Hint += " The trigger names no brokers: the settings are the installation's."
	}
	return c
}

// brokerCause says why the brokers could not be asked.
func brokerCause(t *trigger.Compiled, err error) *trigger.Cause { return own(t, troubleCause(err)) }

// groupCause says why the group does not have the member.
func groupCause(t *trigger.Compiled, err error) *trigger.Cause {
	c := troubleCause(err)
	c.Message = fmt.Sprintf("Group %s: %s", t.Kafka.Group, c.Message)
	return c
}

// linkCause says that one broker cannot be reached, while others can.
func linkCause(t *trigger.Compiled, l kafka.Connection) *trigger.Cause {
	c := own(t, troubleCause(l.Err))
	c.Message = fmt.Sprintf("Broker %d at %s, the partitions of which stand: %s", l.Broker, l.Address, c.Message)
	return c
}

// missingCause says which topics do not exist.
func missingCause(missing []string) *trigger.Cause {
	w := troubles()[kafka.TroubleTopicMissing]
	message := fmt.Sprintf("Topic %s does not exist.", missing[0])
	if len(missing) > 1 {
		message = fmt.Sprintf("Topics %s do not exist.", strings.Join(missing, ", "))
	}
	return &trigger.Cause{Code: w.code, Message: message, Hint: w.hint}
}

// partitionCause says why a partition stands.
func partitionCause(t *trigger.Compiled, st kafka.PartitionStatus) *trigger.Cause {
	if blocked, ok := errors.AsType[*ingest.BlockedError](st.Cause); ok {
		c := blocked.Cause
		c.Message = secret.Redact(c.Message)
		return &c
	}
	if p, ok := errors.AsType[*panicError](st.Cause); ok {
		return &trigger.Cause{
			Code: "panic", Message: "Taking the message panicked: " + text(p),
			Hint: "This is a fault of Millrace: please report it, with what the log says. The message is tried again, other partitions go on.",
		}
	}
	if failed, ok := errors.AsType[*createError](st.Cause); ok {
		return &trigger.Cause{
			Code: "storage", Message: "The message could not be stored: " + text(failed),
			Hint: "Check the database. The message is tried again until it is stored; nothing is skipped.",
		}
	}
	c := troubleCause(st.Cause)
	if c.Code != "topic_recreated" && c.Code != "offset_out_of_range" && c.Code != "unreadable" {
		return own(t, c)
	}
	return c
}

// renewedNote says that a partition began anew with its topic.
func renewedNote(at place) trigger.Cause {
	return trigger.Cause{
		Code:    "topic_recreated",
		Message: fmt.Sprintf("Topic %s was deleted and created again: partition %d began at its first message.", at.topic, at.partition),
	}
}

// expiredNote says that the group's offset was gone.
func expiredNote(group string, at place, offset int64) trigger.Cause {
	return trigger.Cause{
		Code: "offsets_expired",
		Message: fmt.Sprintf("Group %s had no offset in %s/%d any more: it went on at offset %d, where the trigger was last.",
			group, at.topic, at.partition, offset),
		Hint: "If the trigger was disabled for long, raise offsets.retention.minutes of the brokers.",
	}
}
