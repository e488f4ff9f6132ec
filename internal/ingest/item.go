package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// item is a message on its way.
type item struct {
	*Message
	// id is that of what the message may become.
	id uuid.UUID
	// keys are what the message is known by.
	keys []inbox.Key
	// refusal says that nothing can be made of it; otherwise request or start is set.
	refusal *Refusal
	request topics.Request
	start   trigger.Start
	// metadata is that of the message, as JSON.
	metadata json.RawMessage
	// bytes is about how much it brings into a transaction.
	bytes int
}

// Sources of keys.
const (
	keyEvent = "event"
	keyNonce = "nonce"
)

// keysOf returns what a message is known by. One that is forced is known by its identity
// alone, which is then that of the redrive.
func keysOf(m *Message) []inbox.Key {
	var keys []inbox.Key
	if m.Identity != "" {
		keys = append(keys, inbox.Key{Source: keyEvent, ID: digest(m.Identity)})
	}
	if m.Forced {
		return keys
	}
	if m.Nonce != "" {
		keys = append(keys, inbox.Key{Source: keyNonce, ID: digest(m.Nonce)})
	}
	if p := m.Place; p != nil {
		keys = append(keys, inbox.Key{
			Source: "kafka:" + p.Cluster + "/" + base64.RawURLEncoding.EncodeToString(p.TopicID[:]) + "/" + strconv.Itoa(int(p.Partition)),
			ID:     strconv.FormatInt(p.Offset, 10),
		})
	}
	return keys
}

// digest makes a text of bounded length, in letters that every database takes, of any.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// prepare maps messages, up to as many as one transaction takes. With an error, which is
// none of the messages', there are those before it.
func (g *Ingest) prepare(ctx context.Context, t *trigger.Compiled, messages []Message) ([]*item, error) {
	items := make([]*item, 0, min(len(messages), g.cfg.MaxBatch))
	size := 0
	for i := range messages {
		if len(items) == g.cfg.MaxBatch || size > maxBatchBytes {
			break
		}
		it, err := g.itemOf(ctx, t, &messages[i])
		if err != nil {
			return items, err
		}
		items, size = append(items, it), size+it.bytes
	}
	return items, nil
}

// itemOf maps one message. An error is none of the message's.
func (g *Ingest) itemOf(ctx context.Context, t *trigger.Compiled, m *Message) (*item, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	it := &item{Message: m, id: id, keys: keysOf(m), bytes: len(m.Body)}
	if m.Poison != nil {
		it.refusal = refusalOf(m.Poison)
		return it, nil
	}
	if len(m.Body) > g.cfg.MaxRequestBytes {
		it.refusal = &Refusal{"too_large", fmt.Sprintf("the message has %d bytes, %d are allowed", len(m.Body), g.cfg.MaxRequestBytes)}
		return it, nil
	}
	err = g.fill(ctx, t, it)
	if fault, ok := errors.AsType[*trigger.MappingError](err); ok {
		err = &Refusal{fault.Code, fault.Error()}
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		it.refusal = refusal
		return it, nil
	}
	return it, err
}

// refusalOf is what a source says of a message that it cannot read.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	return &Refusal{"not_json", err.Error()}
}

// fill maps the message. The error is a *Refusal or *trigger.MappingError where it is the
// message's.
func (g *Ingest) fill(ctx context.Context, t *trigger.Compiled, it *item) (err error) {
	defer func() {
		// A message that makes the mapping panic is to be had as a dead letter, and not to
		// take its partition down for ever.
		if p := recover(); p != nil {
			g.log.ErrorContext(ctx, "the mapping of a trigger panicked", "trigger", t.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &Refusal{trigger.CodeMapping, fmt.Sprintf("the mapping panicked: %v", p)}
		}
	}()
	m := it.Message
	metadata, err := json.Marshal(m.Metadata)
	if err != nil {
		return fmt.Errorf("encode the metadata of a message: %w", err)
	}
	if m.Metadata == nil {
		metadata = nil
	}
	it.metadata = metadata
	v := &trigger.Variables{Body: m.Body, Event: m.Event, Key: m.Key, Headers: m.Headers, Time: m.Time, Metadata: metadata}
	if t.Kind() == trigger.KindInstance {
		it.start, err = t.Workflow(ctx, v)
		if err == nil {
			it.bytes = len(it.start.Variables) + len(metadata)
			err = g.storable(it.start.Variables)
		}
		return err
	}
	it.request, err = t.Execution(ctx, v)
	if err != nil {
		return err
	}
	it.request.Origin.Metadata = metadata
	it.bytes = len(it.request.Spec) + len(metadata)
	if err := g.storable(it.request.Spec, metadata); err != nil {
		return err
	}
	if err := execution.Normalize(&it.request, time.Now()); err != nil {
		return &Refusal{"invalid_request", err.Error()}
	}
	return nil
}

// storable refuses what is too large, and what PostgreSQL would refuse and take its
// neighbours down with it, as far as that is seen cheaply.
func (g *Ingest) storable(parts ...json.RawMessage) error {
	size := 0
	for _, part := range parts {
		size += len(part)
		if holdsZero(part) {
			return &Refusal{"invalid_request", `what the message is mapped to holds \u0000, which cannot be stored`}
		}
	}
	if size > g.cfg.MaxRequestBytes {
		return &Refusal{"too_large", fmt.Sprintf("what the message is mapped to has %d bytes, %d are allowed", size, g.cfg.MaxRequestBytes)}
	}
	return nil
}

// holdsZero says whether a text of JSON holds the character zero, and not only a
// backslash in front of u0000.
func holdsZero(raw []byte) bool {
	zero := []byte(`\u0000`)
	for at := 0; ; {
		found := bytes.Index(raw[at:], zero)
		if found < 0 {
			return false
		}
		at += found
		slashes := 0
		for at-slashes > 0 && raw[at-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return true
		}
		at += len(zero)
	}
}
