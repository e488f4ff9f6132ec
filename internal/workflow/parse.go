package workflow

import (
	"encoding/json"
	"fmt"
)

// The types of boundary events.
const (
	TimerEvent = "TIMER"
	ErrorEvent = "ERROR"
)

// Parse reads a definition. Members keep their order where it counts, numbers their
// spelling.
func Parse(text []byte) (*Definition, error) {
	d := new(Definition)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("parse a definition: %w", err)
	}
	return d, nil
}
