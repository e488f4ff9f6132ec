package deadletter_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// completed is a record of a type that has a schema, which breaks it.
func completed(t testing.TB, data string) topics.Record {
	t.Helper()
	env, err := topics.NewEnvelope(topics.ExecutionQueued{ExecutionID: "e1", Attempt: 1, ResourceClass: "default", Priority: 3}, topics.WithID("q1"))
	require.NoError(t, err)
	r := env.Record("prod.events", []byte("e1"))
	r.Value = []byte(data)
	return r
}

func ptr[T any](v T) *T { return &v }

// broken files one letter whose record breaks the schema of its type.
func (b *bench) broken(t testing.TB) (id string, original topics.Record) {
	t.Helper()
	original = completed(t, `{"execution_id":"e1","attempt":"one","resource_class":"default","priority":3,"ready_at":"2026-01-02T03:04:05Z"}`)
	b.file(t, letter(1, func(l *middleware.Letter) {
		at := l.Original
		l.Original = original
		l.Original.TopicID, l.Original.Partition, l.Original.Offset = at.TopicID, at.Partition, at.Offset
		l.Class = middleware.MessageFault
	}))
	return b.ids(t)[0], original
}

const mended = `{"execution_id":"e1","attempt":1,"resource_class":"default","priority":3,"ready_at":"2026-01-02T03:04:05Z"}`

func TestAnEditedLetterIsRedrivenAsEdited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, original := b.broken(t)
	headers := append([]topics.Header{{Key: "x", Value: []byte{0xff}}}, original.Headers...)
	require.NoError(t, b.store.Edit(t.Context(), deadletter.Edit{ID: id, Value: ptr([]byte(mended)), Actor: "ada", Reason: "a number"}))
	require.NoError(t, b.store.Edit(t.Context(), deadletter.Edit{ID: id, Key: ptr([]byte("e2")), Headers: &headers, After: 1, Actor: "bob", Reason: "moved"}))

	l, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, original.Value, l.Record.Value, "the original stays")
	assert.Equal(t, 2, l.Edits)
	require.Len(t, l.EditLog, 2)
	assert.Equal(t, []deadletter.Change{{Where: "value/attempt", Old: []byte(`"one"`), New: []byte(`1`)}}, l.EditLog[0].Changes)
	assert.Equal(t, "ada", l.EditLog[0].Actor)
	assert.Equal(t, "a number", l.EditLog[0].Reason)
	assert.Equal(t, []deadletter.Change{
		{Where: "key", Old: []byte("e1"), New: []byte("e2")}, {Where: "header x", New: []byte{0xff}}}, l.EditLog[1].Changes)
	require.Len(t, l.Actions, 2)
	assert.Equal(t, "edit", l.Actions[0].Action)

	result, err := b.store.Redrive(t.Context(), deadletter.Redrive{IDs: []string{id}})
	require.NoError(t, err)
	require.Equal(t, 1, result.Redriven)
	sent := b.sent(t)[0]
	assert.Equal(t, "e2", string(sent.Key))
	assert.JSONEq(t, mended, string(sent.Value))
	assert.Equal(t, headers, sent.Headers[:len(headers)])
	require.ErrorIs(t, b.store.Edit(t.Context(), deadletter.Edit{ID: id, Key: ptr([]byte("z")), After: -1, Reason: "r"}), deadletter.ErrNotOpen)
}

func TestABadEditChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, original := b.broken(t)
	b.file(t, letter(2))
	noHeaders := []topics.Header{}
	for name, c := range map[string]struct {
		edit deadletter.Edit
		want error
	}{
		"unchanged": {deadletter.Edit{ID: id, Value: &original.Value}, deadletter.ErrUnchanged},
		"nothing":   {deadletter.Edit{ID: id}, deadletter.ErrUnchanged},
		"unknown":   {deadletter.Edit{ID: "00000000-0000-7000-8000-000000000000"}, deadletter.ErrNotFound},
		"no id":     {deadletter.Edit{ID: "x"}, deadletter.ErrNotFound},
		"stale":     {deadletter.Edit{ID: id, Value: ptr([]byte(mended)), After: 3}, deadletter.ErrEditConflict},
	} {
		c.edit.Reason = "r"
		require.ErrorIs(t, b.store.Edit(t.Context(), c.edit), c.want, name)
	}
	require.Error(t, b.store.Edit(t.Context(), deadletter.Edit{ID: id, Value: ptr([]byte(mended))}), "without a reason")
	for _, edit := range []deadletter.Edit{
		{Value: ptr([]byte(`{"execution_id":"e1"}`))}, {Value: ptr([]byte(`{`))}, {Value: ptr([]byte{0xff})},
		{Value: ptr([]byte(nil))}, {Value: ptr([]byte(mended)), Headers: &noHeaders},
	} {
		edit.ID, edit.Reason = id, "r"
		var invalid *deadletter.InvalidEditError
		require.ErrorAs(t, b.store.Edit(t.Context(), edit), &invalid)
		var fault *topics.DecodeError
		require.ErrorAs(t, invalid, &fault)
	}
	l, err := b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Zero(t, l.Edits)
	assert.Empty(t, l.Actions)

	require.NoError(t, b.store.Edit(t.Context(), deadletter.Edit{ID: id, Value: ptr([]byte(`{`)), ForceSchema: true, Actor: "ada", Reason: "the consumer takes it"}))
	l, err = b.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.True(t, l.EditLog[0].Forced)
	assert.True(t, l.Actions[0].Forced)
}

func TestOfTwoWhoEditAtOnceOneIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, _ := b.broken(t)
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			errs[i] = b.store.Edit(t.Context(), deadletter.Edit{ID: id, Value: ptr([]byte(mended)), After: 0, Actor: "ada", Reason: "r"})
		})
	}
	all.Wait()
	good := 0
	for _, err := range errs {
		if err == nil {
			good++
			continue
		}
		require.ErrorIs(t, err, deadletter.ErrEditConflict)
	}
	assert.Equal(t, 1, good)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	value := func(text string) topics.Record { return topics.Record{Value: []byte(text)} }
	change := func(where, before, after string) deadletter.Change {
		c := deadletter.Change{Where: where}
		if before != "" {
			c.Old = []byte(before)
		}
		if after != "" {
			c.New = []byte(after)
		}
		return c
	}
	for name, c := range map[string]struct {
		before, after topics.Record
		want          []deadletter.Change
	}{
		"same":     {value(`{}`), value(`{}`), nil},
		"member":   {value(`{"a":{"b/c":1,"d":2}}`), value(`{"a":{"b/c":1.5,"e":null}}`), []deadletter.Change{change("value/a/b~1c", "1", "1.5"), change("value/a/d", "2", ""), change("value/a/e", "", "null")}},
		"element":  {value(`[1,[2]]`), value(`[1,[3]]`), []deadletter.Change{change("value/1/0", "2", "3")}},
		"length":   {value(`{"l":[1]}`), value(`{"l":[1,2]}`), []deadletter.Change{change("value/l", "[1]", "[1,2]")}},
		"big":      {value(`{"n":9007199254740993}`), value(`{"n":9007199254740992}`), []deadletter.Change{change("value/n", "9007199254740993", "9007199254740992")}},
		"space":    {value(`{"n":1}`), value(`{"n": 1}`), []deadletter.Change{change("value", `{"n":1}`, `{"n": 1}`)}},
		"no JSON":  {value("{"), value(`{}`), []deadletter.Change{change("value", "{", "{}")}},
		"to none":  {value("x"), topics.Record{}, []deadletter.Change{change("value", "x", "")}},
		"reorder":  {topics.Record{Headers: []topics.Header{{Key: "a"}, {Key: "b"}}}, topics.Record{Headers: []topics.Header{{Key: "b"}, {Key: "a"}}}, []deadletter.Change{change("order of headers", "", "")}},
		"repeated": {topics.Record{Headers: []topics.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}}, topics.Record{Headers: []topics.Header{{Key: "a", Value: []byte("1")}}}, []deadletter.Change{change("header a", "1, 2", "1")}},
	} {
		assert.Equal(t, c.want, deadletter.Changes(c.before, c.after), name)
	}
}
