package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

func letterFor(t *testing.T, err error, r topics.Record) *middleware.Letter {
	t.Helper()
	cfg := noWait()
	cfg.MaxAttempts = 1
	cfg.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	f, runErr := run(t.Context(), cfg, func(_ context.Context, f *middleware.Flight) error {
		if f.Live() > 0 {
			return err
		}
		settle(f)
		return nil
	}, r)
	require.NoError(t, runErr)
	return f.Items[0].Letter
}

func TestLetterKeepsTheRecordByteIdentical(t *testing.T) {
	t.Parallel()
	original := topics.Record{
		Key: []byte{0xff, 0x00, 'k'}, Value: []byte("\x80not utf-8"), Partition: 7, TopicID: [16]byte{1, 2, 3},
		Headers: []topics.Header{
			{Key: "a", Value: []byte{0xfe}}, {Key: "b", Value: nil}, {Key: "a", Value: []byte("again")},
			{Key: middleware.HeaderReason, Value: []byte("of an earlier letter")},
		},
	}
	cause := errors.New("cause")
	letter := letterFor(t, middleware.Malformed(fmt.Errorf("decode: %w", cause)), original)
	r := letter.Record("dead_letters")
	assert.Equal(t, "dead_letters", r.Topic)
	assert.Equal(t, original.Key, r.Key)
	assert.Equal(t, original.Value, r.Value)
	assert.Equal(t, original.Headers, r.Headers[:4])
	own := topics.Record{Headers: r.Headers[4:]}
	for key, want := range map[string]string{
		"dead-letter-reason": "decode: cause", "dead-letter-cause": "cause",
		"dead-letter-exception-class-name": "*fmt.wrapError", "dead-letter-cause-class-name": "*errors.errorString",
		"dead-letter-topic": "execution_events", "dead-letter-partition": "7", "dead-letter-offset": "0",
		"dead-letter-attempts": "1", "dead-letter-first-failure": "2026-01-02T03:04:05.000000006Z",
		"dead-letter-last-failure":   "2026-01-02T03:04:05.000000006Z",
		"dead-letter-consumer-group": "millrace-audit", "dead-letter-handler": "audit", "dead-letter-key-encoding": "base64",
		"dead-letter-class": "message",
		"reason_poisoned":   "decode: cause", "topic_poisoned": "execution_events", "handler_poisoned": "audit", "subscriber_poisoned": "millrace-audit",
	} {
		got, ok := own.Header(key)
		assert.True(t, ok, key)
		assert.Equal(t, want, string(got), key)
	}

	parsed, err := middleware.ParseLetter(r)
	require.NoError(t, err)
	// What a record does not carry.
	letter.Original.Timestamp = time.Time{}
	assert.Equal(t, letter, parsed)
}

func TestLetterReasonIsCappedAsText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("é", 5000), strings.Repeat("x", 1023) + "€uro", "nul \x00 and \xff bytes"} {
		letter := letterFor(t, middleware.Malformed(errors.New(text)), topics.Record{})
		assert.LessOrEqual(t, len(letter.Reason), middleware.MaxReasonBytes)
		assert.True(t, utf8.ValidString(letter.Reason))
		assert.NotContains(t, letter.Reason, "\x00", "PostgreSQL cannot store it")
		assert.NotEmpty(t, letter.Reason)
	}
}

func TestParseLetterRefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	_, err := middleware.ParseLetter(topics.Record{Headers: []topics.Header{{Key: "dead-letter-reason"}}})
	require.Error(t, err)
	_, err = middleware.ParseLetter(topics.Record{Headers: make([]topics.Header, 40)})
	require.Error(t, err)
}
