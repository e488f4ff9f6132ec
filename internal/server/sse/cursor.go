package sse

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
)

// ErrCursor: the text is not a cursor that this stream gave out.
var ErrCursor = errors.New("last event id is not valid")

const (
	topicCursor     = 1 // of the topic: an offset per partition
	executionCursor = 2 // of one execution: its version

	maxPartitions = 4096
	maxCursorText = 32 << 10
)

// Position is a place in the topic: for each partition, the offset of the next
// record.
type Position []int64

// text returns the position as a cursor.
func (p Position) text() string {
	b := make([]byte, 0, 2+5*len(p))
	b = append(b, topicCursor)
	b = binary.AppendUvarint(b, uint64(len(p)))
	for _, offset := range p {
		b = binary.AppendUvarint(b, uint64(max(offset, 0)))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePosition reads a cursor of the topic, or returns ErrCursor.
func parsePosition(s string) (Position, error) {
	b, err := cursorBytes(s, topicCursor)
	if err != nil {
		return nil, err
	}
	count, b, ok := cutNumber(b)
	if !ok || count > maxPartitions || count > int64(len(b)) {
		return nil, ErrCursor
	}
	p := make(Position, count)
	for i := range p {
		if p[i], b, ok = cutNumber(b); !ok {
			return nil, ErrCursor
		}
	}
	if len(b) > 0 {
		return nil, ErrCursor
	}
	return p, nil
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

// merge moves every partition forward to where q is, never back.
func (p *Position) merge(q Position) {
	for i, offset := range q {
		p.advance(i, offset)
	}
}

func (p Position) clone() Position { return slices.Clone(p) }
