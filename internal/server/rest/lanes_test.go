package rest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/deadletter"
	"github.com/millrace/millrace/internal/parking"
)

func TestLanesOnTheWire(t *testing.T) {
	t.Parallel()
	b, l, id := newLetterBench(t)
	as := []string{"Authorization", "Bearer viewer"}
	head, at := uuid.MustParse(id), time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 3600))
	lane := parking.Lane{
		ID: 7, State: parking.Blocked, Consumer: "billing", Topic: "marks", Partition: 1, Key: []byte{0xff}, Head: &head, Parked: 3, OldestAt: &at, OpenedAt: at, NextTry: at,
	}
	l.one.Lane = &lane
	l.list.Letters[0].Lane = &lane
	l.lanes = []parking.Lane{lane, {ID: 9, State: parking.Stalled, Key: []byte("k"), Tries: 2, NextTry: at, Error: "no database"}}

	w := b.do("GET", "/v1/dead-letters/lanes?consumer=billing&page_size=1&page_token=3", "", as...)
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, parking.Filter{Consumer: "billing", After: 3, Limit: 2}, l.laneFilter)
	list := decode[LaneList](t, w)
	assert.Equal(t, "7", list.NextPageToken)
	require.Len(t, list.Lanes, 1)
	got := list.Lanes[0]
	assert.Equal(t, []byte{0xff}, got.Key.Base64)
	assert.Equal(t, id, got.DeadLetterID)
	assert.Equal(t, at.UTC(), *got.OldestAt)
	assert.Nil(t, got.NextTryAt, "it waits for somebody, not for a time")

	list = decode[LaneList](t, b.do("GET", "/v1/dead-letters/lanes", "", as...))
	require.Len(t, list.Lanes, 2)
	assert.Empty(t, list.NextPageToken)
	assert.Equal(t, "no database", list.Lanes[1].Error)
	assert.Equal(t, at.UTC(), *list.Lanes[1].NextTryAt)

	assert.EqualValues(t, 3, decode[DeadLetter](t, b.do("GET", "/v1/dead-letters/"+id, "", as...)).Lane.Parked)
	letters := decode[DeadLetterList](t, b.do("GET", "/v1/dead-letters?parking=true", "", as...))
	assert.EqualValues(t, 3, letters.DeadLetters[0].Lane.Parked)
	assert.Equal(t, deadletter.Filter{Heads: true}, l.filter)

	for _, query := range []string{"page_token=x", "page_token=-1"} {
		requireProblem(t, b.do("GET", "/v1/dead-letters/lanes?"+query, "", as...), 400, "invalid_page_token")
	}
	requireProblem(t, b.do("GET", "/v1/dead-letters/lanes?consumer=%00", "", as...), 400, "invalid_parameter")
	requireProblem(t, b.do("GET", "/v1/dead-letters/lanes", "", "Authorization", "Bearer acme"), 403, "forbidden")
}
