package pipeline

import (
	"encoding/json"
	"fmt"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/topics"
)

// decodeEvent returns the item's event as an E, held against the schema of its
// type. Every error is a message fault. It decodes anew each time: a handler may
// change what it is given, and the next attempt must not see that.
func decodeEvent[E any](item *middleware.Item) (any, error) {
	env, err := item.Envelope()
	if err != nil {
		return nil, err
	}
	if _, known := topics.Lookup(env.Type); known {
		event, err := topics.DecodeEvent(env)
		if err != nil {
			return nil, middleware.Malformed(err)
		}
		if e, ok := event.(E); ok {
			return e, nil
		}
		// The user's own struct for a type of the catalogue: fewer fields, perhaps.
	}
	if err := topics.ValidateData(env); err != nil {
		return nil, middleware.Malformed(err)
	}
	var e E
	if err := json.Unmarshal(env.Data, &e); err != nil {
		return nil, middleware.Malformed(fmt.Errorf("decode %s: %w", env.Type, err))
	}
	return e, nil
}
