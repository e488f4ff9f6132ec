package postgres

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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

// Place is where a page of a list ends: the last row's time, in PostgreSQL's
// precision, and its id.
type Place struct {
	At time.Time
	ID string
}

// pageToken is a place in a list. Its text is base64url of its JSON; to clients it
// is opaque.
type pageToken struct {
	Version int    `json:"v"`
	Micros  int64  `json:"t"`
	ID      string `json:"i"`
	// Filter is a digest of the filter that the token belongs to.
	Filter []byte `json:"f"`
}

// Token returns the place as text for clients. It is good for the same filter
// only, which is compared by its JSON.
func (p Place) Token(filter any) string {
	raw, err := json.Marshal(pageToken{tokenVersion, p.At.UnixMicro(), p.ID, digest(filter)})
	if err != nil { // cannot happen: numbers, text and bytes only
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// ParseToken reads what Place.Token made with the same filter. Whatever the text,
// it returns a place or an error that wraps ErrPageToken.
func ParseToken(text string, filter any) (Place, error) {
	if len(text) > maxTokenBytes {
		return Place{}, fmt.Errorf("%w: too long", ErrPageToken)
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Place{}, fmt.Errorf("%w: not base64url", ErrPageToken)
	}
	var t pageToken
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil || dec.More() {
		return Place{}, fmt.Errorf("%w: malformed", ErrPageToken)
	}
	switch {
	case t.Version != tokenVersion:
		return Place{}, fmt.Errorf("%w: of another version", ErrPageToken)
	case t.ID == "" || len(t.ID) > maxTokenIDSize || strings.IndexByte(t.ID, 0) >= 0:
		return Place{}, fmt.Errorf("%w: malformed", ErrPageToken)
	case !bytes.Equal(t.Filter, digest(filter)):
		return Place{}, fmt.Errorf("%w: it belongs to other filters", ErrPageToken)
	}
	at := time.UnixMicro(t.Micros).UTC()
	if y := at.Year(); y < 1 || y > 9999 {
		return Place{}, fmt.Errorf("%w: malformed", ErrPageToken)
	}
	return Place{at, t.ID}, nil
}

// digest tells filters apart.
func digest(filter any) []byte {
	raw, err := json.Marshal(filter)
	if err != nil { // a year that JSON cannot write: such a filter has no tokens
		return nil
	}
	sum := sha256.Sum256(raw)
	return sum[:9]
}
