package projections

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrPageToken: the page token is not one that this list gave out, or it belongs
// to other filters.
var ErrPageToken = errors.New("page token is not valid for this list")

const (
	tokenVersion   = 1
	maxTokenBytes  = 4096
	maxTokenIDSize = 1024
)

// token is the place of the last row of a page. Its text is base64url of its
// JSON; to clients it is opaque.
type token struct {
	Version int `json:"v"`
	// Micros is requested_at in microseconds since 1970: PostgreSQL's precision.
	Micros int64  `json:"t"`
	ID     string `json:"i"`
	// Filter is a digest of the filter that the token belongs to.
	Filter []byte `json:"f"`
}

// place is a decoded token.
type place struct {
	RequestedAt time.Time
	ID          string
}

func newToken(requestedAt time.Time, id string, f Filter) string {
	raw, err := json.Marshal(token{tokenVersion, requestedAt.UnixMicro(), id, f.digest()})
	if err != nil { // cannot happen: numbers, text and bytes only
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// parseToken reads what newToken made with the same filter. Whatever the text, it
// returns a place or ErrPageToken.
func parseToken(s string, f Filter) (place, error) {
	if len(s) > maxTokenBytes {
		return place{}, fmt.Errorf("%w: too long", ErrPageToken)
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return place{}, fmt.Errorf("%w: not base64url", ErrPageToken)
	}
	var t token
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil || dec.More() {
		return place{}, fmt.Errorf("%w: malformed", ErrPageToken)
	}
	switch {
	case t.Version != tokenVersion:
		return place{}, fmt.Errorf("%w: of another version", ErrPageToken)
	case t.ID == "" || len(t.ID) > maxTokenIDSize || strings.IndexByte(t.ID, 0) >= 0:
		return place{}, fmt.Errorf("%w: malformed", ErrPageToken)
	case !bytes.Equal(t.Filter, f.digest()):
		return place{}, fmt.Errorf("%w: it belongs to other filters", ErrPageToken)
	}
	at := time.UnixMicro(t.Micros).UTC()
	if y := at.Year(); y < 1 || y > 9999 {
		return place{}, fmt.Errorf("%w: malformed", ErrPageToken)
	}
	return place{at, t.ID}, nil
}

// digest tells filters apart. The order of the states does not matter.
func (f Filter) digest() []byte {
	f.States = slices.Clone(f.States)
	slices.Sort(f.States)
	f.RequestedAfter, f.RequestedBefore = f.RequestedAfter.UTC(), f.RequestedBefore.UTC()
	raw, err := json.Marshal(f)
	if err != nil { // a year that JSON cannot write: such a filter has no tokens
		return nil
	}
	sum := sha256.Sum256(raw)
	return sum[:9]
}
