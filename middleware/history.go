package middleware

import (
	"encoding/json"
	"slices"
	"time"
)

const (
	// MaxHistory is how many failed attempts a letter tells of: the first half of
	// them and the last.
	MaxHistory = 10
	// MaxHistoryErrorBytes caps the text of each.
	MaxHistoryErrorBytes = 256
	// MaxStackBytes caps the stack of a panic.
	MaxStackBytes = 16 << 10
)

// Failure is an attempt that failed.
type Failure struct {
	// Attempt counts from 1. It begins anew when a batch was bisected.
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	// Records is how many records were attempted together.
	Records int `json:"records"`
	// Error is the error's text, at most MaxHistoryErrorBytes of valid UTF-8.
	Error string `json:"error"`
}

// noteFailure adds an attempt to the history of the flight. Of many, those in the
// middle are forgotten.
func (f *Flight) noteFailure(at time.Time, err error) {
	failure := Failure{Attempt: f.Attempt, At: at.UTC(), Records: max(f.Live(), 1), Error: truncate(err.Error(), MaxHistoryErrorBytes)}
	if len(f.failures) == MaxHistory {
		f.failures = slices.Delete(f.failures, MaxHistory/2, MaxHistory/2+1)
	}
	f.failures = append(f.failures, failure)
}

// encodeHistory is the history as a header has it.
func encodeHistory(history []Failure) []byte {
	if history == nil {
		history = []Failure{}
	}
	text, _ := json.Marshal(history) // texts, numbers and times of this era
	return text
}

// parseHistory reads what encodeHistory wrote. It is told for information, so what
// cannot be read counts as nothing.
func parseHistory(text []byte) []Failure {
	var history []Failure
	if json.Unmarshal(text, &history) != nil || len(history) == 0 {
		return nil
	}
	for i := range history {
		history[i].Error = truncate(history[i].Error, MaxHistoryErrorBytes)
	}
	return history[:min(len(history), MaxHistory)]
}
