package sse

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
)

// ErrCursor: the text is not a cursor that this stream gave out.
var ErrCursor = errors.New("last event id is not valid")

const (
	executionCursor = 2 // of one execution: its version
	topicCursor     = 3 // of a topic: which one it is, and an offset per partition

	maxPartitions = 4096
	maxCursorText = 32 << 10
)

// cursor is what a client of a topic comes back with.
type cursor struct {
	// topic stands for the name of the topic, incarnation for its identity at the
	// broker: a topic that was deleted and made anew has another one.
	topic, incarnation uint32
	at                 Position
}

// tag is a short stand-in for something that is only compared.
func tag(b []byte) uint32 {
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint32(sum[:])
}

// Position is a place in the topic: for each partition, the offset of the next
// record.
type Position []int64

// text returns the cursor as clients see it.
func (c cursor) text() string {
	b := make([]byte, 0, 11+5*len(c.at))
	b = append(b, topicCursor)
	b = binary.BigEndian.AppendUint32(b, c.topic)
	b = binary.BigEndian.AppendUint32(b, c.incarnation)
	b = binary.AppendUvarint(b, uint64(len(c.at)))
	for _, offset := range c.at {
		b = binary.AppendUvarint(b, uint64(max(offset, 0)))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor reads a cursor of a topic, or returns ErrCursor.
func parseCursor(s string) (cursor, error) {
	b, err := cursorBytes(s, topicCursor)
	if err != nil || len(b) < 8 {
		return cursor{}, ErrCursor
	}
	c := cursor{topic: binary.BigEndian.Uint32(b), incarnation: binary.BigEndian.Uint32(b[4:])}
	count, b, ok := cutNumber(b[8:])
	if !ok || count > maxPartitions || count > int64(len(b)) {
		return cursor{}, ErrCursor
	}
	c.at = make(Position, count)
	for i := range c.at {
		if c.at[i], b, ok = cutNumber(b); !ok {
			return cursor{}, ErrCursor
		}
	}
	if len(b) > 0 {
		return cursor{}, ErrCursor
	}
	return c, nil
}

func sequenceText(sequence int64) string {
	b := binary.AppendUvarint([]byte{executionCursor}, uint64(max(sequence, 0)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseSequence reads a cursor of one execution, or returns ErrCursor.
func parseSequence(s string) (int64, error) {
	b, err := cursorBytes(s, executionCursor)
	if err != nil {
		return 0, err
	}
	sequence, rest, ok := cutNumber(b)
	if !ok || len(rest) > 0 {
		return 0, ErrCursor
	}
	return sequence, nil
}

func cursorBytes(s string, kind byte) ([]byte, error) {
	if len(s) > maxCursorText {
		return nil, ErrCursor
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != kind {
		return nil, ErrCursor
	}
	return b[1:], nil
}

func cutNumber(b []byte) (n int64, rest []byte, ok bool) {
	u, size := binary.Uvarint(b)
	if size <= 0 || u > 1<<62 {
		return 0, nil, false
	}
	return int64(u), b[size:], true
}

// reached reports whether p has nothing left before target.
func (p Position) reached(target Position) bool {
	for i, offset := range target {
		if p.at(i) < offset {
			return false
		}
	}
	return true
}

// at returns the offset of a partition, 0 for one that p does not know.
func (p Position) at(partition int) int64 {
	if partition < len(p) {
		return p[partition]
	}
	return 0
}

// advance moves a partition forward to offset, never back.
func (p *Position) advance(partition int, offset int64) {
	for len(*p) <= partition {
		*p = append(*p, 0)
	}
	(*p)[partition] = max((*p)[partition], offset)
}

// back returns p with every partition further back by span, but not before start.
func (p Position) back(span int64, start Position) Position {
	q := make(Position, len(p))
	for i, offset := range p {
		q[i] = min(offset, max(offset-span, start.at(i)))
	}
	return q
}

// merge moves every partition forward to where q is, never back.
func (p *Position) merge(q Position) {
	for i, offset := range q {
		p.advance(i, offset)
	}
}

func (p Position) clone() Position { return slices.Clone(p) }
