package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/ingest"
	"github.com/millrace/millrace/internal/server/problem"
	"github.com/millrace/millrace/internal/trigger"
	"github.com/millrace/millrace/topics"
)

// maxEvents is how many events a batch may have.
const maxEvents = 1000

const mediaTypeForm = "application/x-www-form-urlencoded"

// received is a request as messages.
type received struct {
	messages []ingest.Message
	// batch tells a batch of one event from an event.
	batch bool
}

// decode makes messages of a request.
func (p *plan) decode(r *http.Request, body []byte, nonce string, now time.Time) (received, error) {
	declared := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(declared)
	if declared != "" && err != nil {
		return received{}, problem.UnsupportedMediaType().With("the Content-Type is not well-formed")
	}
	headers := p.headers(r)
	message := ingest.Message{Headers: headers, Time: now, Nonce: nonce, Metadata: metadataOf(r, headers)}
	switch {
	case media == topics.ContentTypeBatch:
		return p.decodeBatch(body, message)
	case media == topics.ContentTypeStructured || isBinary(r.Header):
		env, err := topics.DecodeRecord(topics.Record{Value: body, Headers: eventHeaders(r.Header)})
		if err != nil {
			return received{}, malformedEvent(err)
		}
		return received{messages: []ingest.Message{withEvent(message, env)}}, nil
	case media == "" || isJSON(media):
		message.Body = body
	case media == mediaTypeForm:
		if message.Body, err = fromForm(body); err != nil {
			return received{}, err
		}
	default:
		return received{}, problem.UnsupportedMediaType().With(
			"send JSON (application/json), a form, or a CloudEvent (application/cloudevents+json, application/cloudevents-batch+json, or ce- headers)")
	}
	message.Identity, err = p.identity(r, message.Body)
	return received{messages: []ingest.Message{message}}, err
}

func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json") && !strings.HasPrefix(media, "application/cloudevents")
}

func (p *plan) decodeBatch(body []byte, message ingest.Message) (received, error) {
	envs, err := topics.DecodeBatchJSON(body)
	if err != nil {
		return received{}, malformedEvent(err)
	}
	if len(envs) > maxEvents {
		return received{}, problem.BodyTooLarge().With(fmt.Sprintf("at most %d events are accepted in a batch, not %d", maxEvents, len(envs)))
	}
	in := received{batch: true}
	for i, env := range envs {
		one := withEvent(message, env)
		if one.Nonce != "" {
			one.Nonce += "#" + strconv.Itoa(i)
		}
		in.messages = append(in.messages, one)
	}
	return in, nil
}

// withEvent makes a message one of an event. What has no data is an object without members.
func withEvent(m ingest.Message, env topics.Envelope) ingest.Message {
	if len(env.Data) == 0 {
		env.Data = []byte("{}")
	}
	m.Event, m.Body = &env, env.Data
	source, id := env.Identity()
	m.Identity = source + "\n" + id // neither may have a line break
	return m
}

func malformedEvent(err error) error {
	d, ok := errors.AsType[*topics.DecodeError](err)
	switch {
	case !ok:
		return err
	case d.Code == topics.CodeUnsupportedFormat:
		return problem.UnsupportedMediaType().With("of the formats of CloudEvents JSON is read: application/cloudevents+json and application/cloudevents-batch+json")
	}
	fault := problem.Fault{Code: d.Code, Message: d.Message}
	if fault.Pointer = d.Field; d.Field != "" && !strings.HasPrefix(d.Field, "/") {
		fault.Pointer = "/" + d.Field
	}
	return problem.MalformedEvent().With(d.Error(), fault)
}

// isBinary reports whether headers hold a CloudEvent. One that happens to begin with ce- is
// none.
func isBinary(h http.Header) bool {
	return h.Get("Ce-Specversion") != "" || h.Get("Ce-Id") != "" && h.Get("Ce-Type") != ""
}

// eventHeaders returns the headers of HTTP as those of a record.
func eventHeaders(h http.Header) []topics.Header {
	var out []topics.Header
	for _, name := range slices.Sorted(maps.Keys(h)) {
		lower := strings.ToLower(name)
		attribute, binary := strings.CutPrefix(lower, "ce-")
		if binary && isBinary(h) {
			lower = topics.HeaderPrefix + attribute
		} else if binary || lower == topics.HeaderWatermillUUID || strings.HasPrefix(lower, topics.HeaderPrefix) {
			continue
		}
		for _, value := range h[name] {
			if binary {
				value = unescape(value)
			}
			out = append(out, topics.Header{Key: lower, Value: []byte(value)})
		}
	}
	return out
}

// unescape reads the value of an attribute as HTTP carries it: what is not printable ASCII is
// percent-encoded. Older senders also quote.
func unescape(value string) string {
	if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		if plain, err := strconv.Unquote(value); err == nil {
			value = plain
		}
	}
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value // a % that means itself
}

// identity returns what tells a repetition of a body that is no event.
func (p *plan) identity(r *http.Request, body []byte) (string, error) {
	switch values := r.Header.Values(p.IdempotencyHeader); {
	case len(values) > 1:
		return "", badHeader(p.IdempotencyHeader, "duplicate_parameter", "is given more than once")
	case len(values) == 1 && (values[0] == "" || len(values[0]) > topics.MaxAttributeBytes):
		return "", badHeader(p.IdempotencyHeader, "out_of_range", fmt.Sprintf("must have between 1 and %d bytes", topics.MaxAttributeBytes))
	case len(values) == 1:
		return "key:" + values[0], nil
	case p.IdempotencyPointer != "":
		if value := pointed(body, p.IdempotencyPointer); value != "" {
			return "key:" + value, nil
		}
	}
	return "", nil
}

func badHeader(name, code, message string) error {
	return problem.InvalidParameter().With("", problem.Fault{Parameter: name, Code: code, Message: message})
}

// pointed returns the text or number that a JSON pointer leads to through objects, "" where
// there is none.
func pointed(body []byte, pointer string) string {
	if !json.Valid(body) {
		return ""
	}
	at := json.RawMessage(body)
	unescaped := strings.NewReplacer("~1", "/", "~0", "~")
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		name = unescaped.Replace(name)
		var next json.RawMessage
		for member, value := range topics.Members(at) {
			if member == name {
				next = value
			}
		}
		at = next
	}
	if len(at) == 0 {
		return ""
	}
	switch c := at[0]; {
	case c == '"':
		var text string
		_ = json.Unmarshal(at, &text) // it is valid
		return text
	case c == '-' || c >= '0' && c <= '9':
		return string(at)
	}
	return ""
}

// fromForm makes an object of a form: the object in its field payload, where that is the only
// one, else its fields as texts, and those that occur more than once as lists. JSON that
// only says that it is a form is taken for what it is: curl -d says so of everything. A number
// or a word alone may well be the name of a field.
func fromForm(body []byte) ([]byte, error) {
	if text := bytes.TrimSpace(body); len(text) > 0 && strings.IndexByte(`{["`, text[0]) >= 0 && json.Valid(text) {
		return body, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, problem.MalformedForm().With("")
	}
	if payload := form["payload"]; len(form) == 1 && len(payload) == 1 && strings.HasPrefix(strings.TrimSpace(payload[0]), "{") {
		return []byte(payload[0]), nil
	}
	object := make(map[string]any, len(form))
	for name, values := range form {
		object[name] = values
		if len(values) == 1 {
			object[name] = values[0]
		}
	}
	return json.Marshal(object)
}

// challenge returns what a sender wants to hear before it sends anything: Slack's handshake.
func (p *plan) challenge(body []byte) (string, bool) {
	if p.Auth.HMAC == nil || p.Auth.HMAC.Style != trigger.StyleSlack || pointed(body, "/type") != "url_verification" {
		return "", false
	}
	return pointed(body, "/challenge"), true
}
