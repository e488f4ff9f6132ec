package hooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/trigger"
)

func TestEventsInEveryMode(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	binary := []string{"Ce-Specversion", "1.0", "Ce-Id", "42", "Ce-Source", "/shop", "Ce-Type", "order.placed", "Ce-Subject", "caf%C3%A9%25",
		"Ce-Time", "2026-01-02T03:04:05Z", "Ce-Tenant", "blue", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	first := accepted(t, b.post("orders", `{"n":1}`, binary...), http.StatusAccepted)
	m := b.last()
	require.NotNil(t, m.Event)
	assert.Equal(t, `{"n":1}`, string(m.Body))
	assert.Equal(t, "/shop\n42", m.Identity)
	assert.Equal(t, "order.placed", m.Event.Type)
	assert.Equal(t, "café%", m.Event.Subject, "what is not printable ASCII is percent-encoded")
	assert.Equal(t, map[string]string{"tenant": "blue"}, m.Event.Extensions)
	assert.Contains(t, m.Event.TraceParent, "0af7651916cd43dd8448eb211c80319c")

	structured := `{"specversion":"1.0","id":"42","source":"/shop","type":"order.placed","data":{"n":1}}`
	again := accepted(t, b.post("orders", structured, "Content-Type", "application/cloudevents+json; charset=utf-8"), http.StatusOK)
	assert.Equal(t, first.ID, again.ID, "the same event, however it is sent")
	assert.JSONEq(t, `{"n":1}`, string(b.last().Body))
	assert.Equal(t, "order.placed", b.last().Event.Type)

	plain := accepted(t, b.post("orders", structured), http.StatusAccepted)
	assert.NotEqual(t, first.ID, plain.ID, "what does not say that it is an event is none")
	assert.Nil(t, b.last().Event)

	accepted(t, b.post("orders", `{}`, "Ce-Foo", "bar"), http.StatusAccepted)
	assert.Nil(t, b.last().Event)
}

func TestAnEventWithoutDataIsAnEmptyObject(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	accepted(t, b.post("orders", "", "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/a", "Ce-Type", "t", "Content-Type", ""), http.StatusAccepted)
	assert.Equal(t, "{}", string(b.last().Body))
}

func TestEventsThatAreNone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	p := refused(t, b.post("orders", `{"specversion":"1.0","id":"1","type":"t"}`, "Content-Type", "application/cloudevents+json"), http.StatusBadRequest, "malformed_event")
	require.Len(t, p.Errors, 1)
	assert.Equal(t, "/source", p.Errors[0].Pointer)
	p = refused(t, b.post("orders", `{}`, "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Type", "t"), http.StatusBadRequest, "malformed_event")
	assert.Equal(t, "/source", p.Errors[0].Pointer)
	refused(t, b.post("orders", `{}`, "Ce-Specversion", "0.3", "Ce-Id", "1", "Ce-Type", "t", "Ce-Source", "/a"), http.StatusBadRequest, "malformed_event")
	p = refused(t, b.post("orders", `[{"specversion":"1.0"}]`, "Content-Type", "application/cloudevents-batch+json"), http.StatusBadRequest, "malformed_event")
	assert.Equal(t, "/0/id", p.Errors[0].Pointer)
	refused(t, b.post("orders", `{}`, "Content-Type", "application/cloudevents-batch+json"), http.StatusBadRequest, "malformed_event")
	for _, media := range []string{"application/cloudevents+avro", "application/xml", "text/plain"} {
		refused(t, b.post("orders", `{}`, "Content-Type", media), http.StatusUnsupportedMediaType, "unsupported_media_type")
	}
	refused(t, b.post("orders", `{}`, "Content-Type", "/"), http.StatusUnsupportedMediaType, "unsupported_media_type")
	accepted(t, b.post("orders", ` {"n":1}`, "Content-Type", "application/x-www-form-urlencoded"), http.StatusAccepted)
	assert.JSONEq(t, `{"n":1}`, string(b.last().Body), "curl -d says of JSON that it is a form")
	refused(t, b.post("orders", `[1]`, "Content-Type", "application/x-www-form-urlencoded"), http.StatusBadRequest, "malformed_json")
	refused(t, b.post("orders", `a=%zz`, "Content-Type", "application/x-www-form-urlencoded"), http.StatusBadRequest, "malformed_form")
	assert.Len(t, b.received(), 2, "what is none reached nobody")
}

// batch makes a batch of events with these data.
func batch(data ...string) string {
	var events []string
	for i, d := range data {
		events = append(events, fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"/shop","type":"t","data":%s}`, i, d))
	}
	return "[" + strings.Join(events, ",") + "]"
}

const batchType = "application/cloudevents-batch+json"

func TestABatchIsAnsweredEventByEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	var answer hooks.HookBatchAnswer
	w := b.post("orders", batch(`{"n":0}`, `{"n":1}`), "Content-Type", batchType)
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	assert.Equal(t, 2, answer.Created)
	require.Len(t, answer.Results, 2)
	assert.NotEqual(t, answer.Results[0].ID, answer.Results[1].ID)
	assert.Len(t, b.received(), 1, "in one transaction")

	w = b.post("orders", batch(`{}`, `{}`, `{}`), "Content-Type", batchType)
	require.Equal(t, http.StatusAccepted, w.Code)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	assert.Equal(t, 1, answer.Created, "two were known")
	assert.Equal(t, 3, answer.Accepted)
	assert.Equal(t, http.StatusOK, b.post("orders", batch(`{}`, `{}`), "Content-Type", batchType).Code)

	w = b.post("orders", `[]`, "Content-Type", batchType)
	require.Equal(t, http.StatusAccepted, w.Code)
	assert.JSONEq(t, `{"trigger":"orders","accepted":0,"created":0,"results":[]}`, w.Body.String())
	tooMany := make([]string, 1001)
	for i := range tooMany {
		tooMany[i] = "0"
	}
	refused(t, b.post("orders", batch(tooMany...), "Content-Type", batchType), http.StatusRequestEntityTooLarge, "body_too_large")
}

func TestABatchIsNotAcceptedWhileAPartOfItIsNot(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", open())
	p := refused(t, b.post("orders", batch(`{"n":0}`, `{"refuse":"mapping"}`, `{"n":2}`), "Content-Type", batchType), http.StatusUnprocessableEntity, "message_refused")
	require.Len(t, p.Errors, 1)
	assert.Equal(t, "/1", p.Errors[0].Pointer)
	assert.Contains(t, p.Detail, "1 of 3 events were refused")

	p = refused(t, b.post("orders", batch(`{"n":0}`, `{"n":1}`, `{"block":1}`, `{"n":3}`), "Content-Type", batchType), http.StatusServiceUnavailable, "hook_unavailable")
	assert.Contains(t, p.Detail, "2 of 4 events were taken, send the batch again")
	assert.Equal(t, http.StatusAccepted, b.post("orders", batch(`{"n":0}`, `{"n":1}`, `{}`, `{"n":3}`), "Content-Type", batchType).Code)
}

func TestABatchIsSignedAsAWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", signed(trigger.HMAC{TimestampHeader: "X-Timestamp"}))
	body := batch(`{}`, `{}`)
	headers := []string{"X-Timestamp", stamp(0), "X-Signature-256", sign("hunter2", stamp(0)+"."+body), "Content-Type", batchType}
	require.Equal(t, http.StatusAccepted, b.post("orders", body, headers...).Code)
	sent := b.received()[0]
	require.Len(t, sent, 2)
	assert.NotEqual(t, sent[0].Nonce, sent[1].Nonce)
	assert.Equal(t, http.StatusOK, b.post("orders", body, headers...).Code)
}

func TestRepetitionsAreToldByAHeaderOrAPartOfTheBody(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	w := open()
	w.IdempotencyHeader, w.IdempotencyPointer = "X-Delivery", "/a~1b/id"
	b.hook("orders", w)
	first := accepted(t, b.post("orders", `{"n":1}`, "X-Delivery", "d1"), http.StatusAccepted)
	assert.Equal(t, first.ID, accepted(t, b.post("orders", `{"n":2}`, "X-Delivery", "d1"), http.StatusOK).ID)
	for body, identity := range map[string]string{
		`{"a/b":{"id":"x\u0079"}}`: "key:xy",
		`{"a/b":{"id":12}}`:        "key:12",
		`{"a/b":{"id":true}}`:      "",
		`{"a/b":{"id":{}}}`:        "",
		`{"a/b":7}`:                "",
		`{}`:                       "",
	} {
		accepted(t, b.post("orders", body), http.StatusAccepted)
		assert.Equal(t, identity, b.last().Identity, body)
	}
	twice := b.request("orders", `{}`)
	twice.Header["X-Delivery"] = []string{"a", "b"}
	refused(t, b.serve(twice), http.StatusBadRequest, "invalid_parameter")
	refused(t, b.post("orders", `{}`, "X-Delivery", strings.Repeat("x", 1025)), http.StatusBadRequest, "invalid_parameter")
}
