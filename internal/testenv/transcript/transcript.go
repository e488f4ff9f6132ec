// Package transcript holds what a program under test writes.
package transcript

import (
	"bytes"
	"sync"
)

// Text is a writer that a test may read while others write. The zero value is empty
// and ready to use.
type Text struct {
	// OnWrite, which may be nil, is told of each piece before it is added. Set it
	// before anybody writes; it must not use the Text.
	OnWrite func(piece string)

	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds a piece. It never fails.
func (t *Text) Write(piece []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.OnWrite != nil {
		t.OnWrite(string(piece))
	}
	return t.text.Write(piece)
}

// String returns what was written so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
