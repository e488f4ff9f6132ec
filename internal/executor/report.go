package executor

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Bounds of what an attempt tells of itself.
const (
	// MaxCheckpointBytes is the longest checkpoint.
	MaxCheckpointBytes = 64 << 10
	// MaxProgressMessageBytes is how much of a message is kept.
	MaxProgressMessageBytes = 512
)

// ErrCheckpointTooLarge: a checkpoint is longer than MaxCheckpointBytes.
var ErrCheckpointTooLarge = errors.New("checkpoint is too large")

// Reporter takes what a running attempt tells of itself. It is safe for concurrent
// use and never waits: what is told later replaces what was told before, and the
// last of it is stored with the next renewal of the lease, and with the result. A
// worker that is killed takes with it what was told since its last heartbeat.
type Reporter interface {
	// Progress says how far the attempt has come.
	Progress(p Progress)
	// Checkpoint keeps data, which is copied, for the attempt that may follow this
	// one. The error is ErrCheckpointTooLarge.
	Checkpoint(data []byte) error
}

// Progress is how far an attempt has come: Done of Total, of which a total of 1
// makes a fraction. Without a total Done is just a count.
type Progress struct {
	Done    float64
	Total   float64
	Message string
}

// NewProgress checks a report: both numbers must be finite and not negative, and
// done at most total where there is one. The message is cut to
// MaxProgressMessageBytes, and made one line of valid UTF-8.
func NewProgress(done, total float64, message string) (Progress, error) {
	for _, n := range []float64{done, total} {
		if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
			return Progress{}, fmt.Errorf("progress: %v is not a number that can be counted to", n)
		}
	}
	if total > 0 && done > total {
		return Progress{}, fmt.Errorf("progress: %v is more than %v", done, total)
	}
	return Progress{Done: done, Total: total, Message: line(message)}, nil
}

func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > MaxProgressMessageBytes {
		text = text[:MaxProgressMessageBytes]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text
}

// Deaf is a Reporter that forgets everything, for attempts that nobody asks.
type Deaf struct{}

// Progress implements Reporter.
func (Deaf) Progress(Progress) {}

// Checkpoint implements Reporter.
func (Deaf) Checkpoint(data []byte) error {
	if len(data) > MaxCheckpointBytes {
		return fmt.Errorf("%w: %d bytes, %d are kept", ErrCheckpointTooLarge, len(data), MaxCheckpointBytes)
	}
	return nil
}
