package deadletter_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// noise is text that does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func manyHeaders(n int) []topics.Header {
	headers := make([]topics.Header, n)
	for i := range headers {
		headers[i] = topics.Header{Key: fmt.Sprint("h", i%7), Value: noise(20)}
	}
	return headers
}

// references returns the letters of dead_letters that are references.
func (p *plant) references() []topics.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.letters), func(r topics.Record) bool {
		_, ok := r.Header(middleware.HeaderStoredID)
		return !ok
	})
}

// A record that does not fit into the dead-letter topic with what a letter adds, in
// both ways of filing: the row has the whole, the topic a reference.
func TestWhatIsTooLargeForTheTopicIsStoredWhole(t *testing.T) {
	t.Parallel()
	p := newPlant(t, map[string]string{"max.message.bytes": "16384"})
	p.setBroken("each", "tx")
	large := markRecord(t, "a", topics.Header{Key: "x", Value: []byte{0xff}})
	large.Value = []byte(`{"id":"a","pad":"` + fmt.Sprintf("%x", noise(50_000)) + `"}`)
	wide := markRecord(t, "b", manyHeaders(10_000)...)
	p.publish(t, large, wide, markRecord(t, "end"))
	p.awaitTaken(t, "each", "end")
	p.awaitTaken(t, "tx", "end")
	letters := p.awaitLetters(t, 4, deadletter.Filter{})
	require.Eventually(t, func() bool { return len(p.references()) == 4 }, eventually, tick)
	p.awaitFiled(t, 4)
	assert.Len(t, p.all(t, deadletter.Filter{Statuses: []deadletter.Status{deadletter.Open}}), 4, "reading references changes nothing")
	for _, r := range p.references() {
		assert.Nil(t, r.Value)
		l, err := middleware.ParseLetter(r)
		require.NoError(t, err)
		whole, err := p.store.Get(t.Context(), l.StoredID)
		require.NoError(t, err)
		assert.Equal(t, l.Consumer, whole.Consumer)
		assert.Equal(t, l.Original.Offset, whole.Record.Offset)
		want := []topics.Record{large, wide}[whole.Record.Offset]
		assert.Equal(t, want.Key, whole.Record.Key)
		assert.Equal(t, want.Value, whole.Record.Value)
		assert.Equal(t, want.Headers, whole.Record.Headers)
		if whole.Record.Offset == 0 {
			assert.Equal(t, want.Headers, l.Original.Headers, "they are not what is large")
		} else {
			assert.Empty(t, l.Original.Headers)
		}
	}
	p.setBroken()
	p.redrive(t, false, letters...)
	p.awaitTaken(t, "each", "end", "a", "b")
	p.awaitTaken(t, "tx", "end", "a", "b")
	p.awaitLetters(t, 4, deadletter.Filter{Statuses: []deadletter.Status{deadletter.Resolved}})
}

// A reference whose row is gone tells that there was a letter.
func TestAReferenceToNothingIsALetterWithoutARecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.file(t, letter(1, func(l *middleware.Letter) { l.StoredID = "0198c0de-0000-7000-8000-000000000001" }))
	all := b.all(t, deadletter.Filter{Archived: deadletter.OnlyArchived})
	assert.Equal(t, []deadletter.Status{deadletter.Deleted}, statuses(all))
	assert.Empty(t, b.all(t, deadletter.Filter{}))
}

func TestPoisonIsQuarantinedAndItsNeighbourGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	deep := markRecord(t, "deep")
	deep.Value = []byte(`{"id":"deep","x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`)
	deepest := markRecord(t, "deep")
	deepest.Value = bytes.Repeat([]byte(`{"a":`), 100_000)
	wide := markRecord(t, "wide", manyHeaders(10_000)...)
	wide.Value = []byte("{")
	poison := []topics.Record{
		{Topic: "marks"},
		{Topic: "marks", Key: []byte{}, Value: []byte{}},
		{Topic: "marks", Key: []byte("k")},
		{Topic: "marks", Value: []byte("\xff\xfe")},
		{Topic: "marks", Value: []byte(`{"specversion":"1.0"}`)},
		{Topic: "marks", Key: []byte{0xff, 0}, Value: noise(900_000)},
		deep, deepest, wide,
	}
	p.publish(t, poison...)
	p.publish(t, markRecord(t, "end"))
	p.awaitTaken(t, "each", "end")
	p.awaitTaken(t, "tx", "end")
	letters := p.awaitLetters(t, 3*len(poison), deadletter.Filter{})
	for _, l := range letters {
		assert.Equal(t, "message", l.Class, l.Reason)
		whole, err := p.store.Get(t.Context(), l.ID.String())
		require.NoError(t, err)
		want := poison[l.Record.Offset]
		assert.Equal(t, want.Key, whole.Record.Key)
		assert.Equal(t, want.Value, whole.Record.Value)
		assert.Equal(t, want.Headers, whole.Record.Headers)
	}
	p.awaitFiled(t, 2*len(poison))
	assert.Len(t, p.all(t, deadletter.Filter{}), 3*len(poison))
}

func TestALetterTellsOfItsAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	history := []middleware.Failure{
		{Attempt: 1, At: start, Records: 3, Error: "no \x00 price"}, {Attempt: 2, At: start.Add(1), Records: 1, Error: "handler panicked: x"}}
	b.file(t, letter(1, func(l *middleware.Letter) {
		l.History, l.Stack, l.Origin = history, "goroutine 1\n\x00main.go:7", "elsewhere"
	}))
	l, err := b.store.Get(t.Context(), b.ids(t)[0])
	require.NoError(t, err)
	history[0].Error = "no \uFFFD price"
	assert.Equal(t, history, l.History)
	assert.Equal(t, "goroutine 1\n\uFFFDmain.go:7", l.Stack)
	assert.Equal(t, "elsewhere", l.Origin)
}
