package hooks_test

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/millrace/millrace/internal/trigger"
)

// The examples are those of the senders' own documentation.
func TestSignaturesOfWellKnownSenders(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.secrets["GITHUB"] = "It's a Secret to Everybody"
	b.hook("github", signed(trigger.HMAC{Style: trigger.StyleGitHub, Secrets: []trigger.SecretRef{{Env: "GITHUB"}}}))
	// The body of the example is no JSON, which is found out behind the signature.
	refused(t, b.post("github", "Hello, World!",
		"X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"), http.StatusBadRequest, "malformed_json")
	refused(t, b.post("github", "Hello, World?",
		"X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"), http.StatusUnauthorized, "hook_unauthorized")
}

func TestSignaturesOfStandardWebhooks(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	h := trigger.HMAC{Style: trigger.StyleStandard, Secrets: []trigger.SecretRef{{Env: "STANDARD"}}, ReplayWindow: 1}
	b.secrets["STANDARD"] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	b.hook("late", signed(h))
	headers := []string{"Webhook-Id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp", "1614265330",
		"Webhook-Signature", "v1a,AAAA v1,c2hvcnQ= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}
	p := refused(t, b.post("late", `{"test": 2432232314}`, headers...), http.StatusUnauthorized, "hook_unauthorized")
	assert.Contains(t, p.Detail, "timestamp", "the signature is good, and old")
	headers[1] = "msg_other"
	p = refused(t, b.post("late", `{"test": 2432232314}`, headers...), http.StatusUnauthorized, "hook_unauthorized")
	assert.Contains(t, p.Detail, "signature", "the id is signed too")
	p = refused(t, b.post("late", `{"test": 2432232314}`, headers[2:]...), http.StatusUnauthorized, "hook_unauthorized")
	assert.Contains(t, p.Detail, "Webhook-Id is missing")

	key, body := "a secret", `{}`
	b.secrets["STANDARD"] = "whsec_" + base64.StdEncoding.EncodeToString([]byte(key))
	h.ReplayWindow = 0
	b.hook("now", signed(h))
	answer := accepted(t, b.post("now", body, "Webhook-Id", "m1", "Webhook-Timestamp", stamp(0), "Webhook-Signature", "v1,"+sign64(key, "m1."+stamp(0)+"."+body)), http.StatusAccepted)
	again := accepted(t, b.post("now", body, "Webhook-Id", "m1", "Webhook-Timestamp", stamp(9), "Webhook-Signature", "v1,"+sign64(key, "m1."+stamp(9)+"."+body)), http.StatusOK)
	assert.Equal(t, answer.ID, again.ID)
}

func TestSignaturesOfStripe(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("stripe", signed(trigger.HMAC{Style: trigger.StyleStripe}))
	body := `{"id":"evt_1"}`
	header := func(at, key string) string {
		return "t=" + at + ", v1=" + sign("of another", at+"."+body) + ",v1=" + sign(key, at+"."+body) + ",v0=" + sign(key, body)
	}
	answer := accepted(t, b.post("stripe", body, "Stripe-Signature", header(stamp(-299), "hunter2")), http.StatusAccepted)
	again := accepted(t, b.post("stripe", body, "Stripe-Signature", header(stamp(1), "hunter1")), http.StatusOK)
	assert.Equal(t, answer.ID, again.ID, "it is told by the id of the event")
	for what, signature := range map[string]string{
		"too old":          header(stamp(-301), "hunter2"),
		"from the future":  header(stamp(301), "hunter2"),
		"of a wrong key":   header(stamp(0), "hunter3"),
		"with other time":  "t=" + stamp(1) + ",v1=" + sign("hunter2", stamp(0)+"."+body),
		"without a time":   "v1=" + sign("hunter2", stamp(0)+"."+body),
		"with two times":   "t=" + stamp(0) + "," + header(stamp(0), "hunter2"),
		"of an old scheme": "t=" + stamp(0) + ",v0=" + sign("hunter2", stamp(0)+"."+body),
		"no time at all":   "t=soon,v1=" + sign("hunter2", "soon."+body),
		"not hex":          "t=" + stamp(0) + ",v1=zz",
		"empty":            "t=" + stamp(0) + ",v1=",
		"nothing":          "",
	} {
		refused(t, b.post("stripe", body, "Stripe-Signature", signature), http.StatusUnauthorized, "hook_unauthorized")
		assert.Len(t, b.received(), 2, "%s: it stores nothing", what)
	}
}

func TestSignaturesOfSlack(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("slack", signed(trigger.HMAC{Style: trigger.StyleSlack}))
	post := func(body, media string) (headers []string) {
		return []string{"X-Slack-Request-Timestamp", stamp(0), "X-Slack-Signature", "v0=" + sign("hunter2", "v0:"+stamp(0)+":"+body), "Content-Type", media}
	}
	body := `{"type":"url_verification","challenge":"3eZbrw1a"}`
	w := b.post("slack", body, post(body, "application/json")...)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "3eZbrw1a", w.Body.String(), "the handshake")
	assert.Empty(t, b.received())
	refused(t, b.post("slack", body), http.StatusUnauthorized, "hook_unauthorized")

	body = `{"type":"event_callback","event_id":"Ev1"}`
	accepted(t, b.post("slack", body, post(body, "application/json")...), http.StatusAccepted)
	assert.Equal(t, "key:Ev1", b.last().Identity)
	body = "command=%2Fdeploy&text=now+please&tag=a&tag=b"
	accepted(t, b.post("slack", body, post(body, "application/x-www-form-urlencoded")...), http.StatusAccepted)
	assert.JSONEq(t, `{"command":"/deploy","text":"now please","tag":["a","b"]}`, string(b.last().Body))
	body = "payload=%7B%22type%22%3A%22block_actions%22%7D"
	accepted(t, b.post("slack", body, post(body, "application/x-www-form-urlencoded")...), http.StatusAccepted)
	assert.JSONEq(t, `{"type":"block_actions"}`, string(b.last().Body))
}

func TestASignedRequestIsGoodOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", signed(trigger.HMAC{TimestampHeader: "X-Timestamp"}))
	body := `{"n":1}`
	send := func(at, key, id string) []string {
		return []string{"X-Timestamp", at, "X-Signature-256", sign(key, at+"."+body), "Idempotency-Key", id}
	}
	first := accepted(t, b.post("orders", body, send(stamp(0), "hunter2", "")...), http.StatusAccepted)
	w := b.post("orders", body, send(stamp(0), "hunter2", "")...)
	assert.Equal(t, first.ID, accepted(t, w, http.StatusOK).ID)
	assert.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	assert.Equal(t, "/v1/executions/"+first.ID, w.Header().Get("Location"))
	again := accepted(t, b.post("orders", body, send(stamp(0), "hunter2", "another")...), http.StatusOK)
	assert.Equal(t, first.ID, again.ID, "the key is not signed: whoever has seen the request can change it")
	again = accepted(t, b.post("orders", body, send(stamp(0), "hunter1", "")...), http.StatusOK)
	assert.Equal(t, first.ID, again.ID, "what was signed counts, not with which secret")
	later := accepted(t, b.post("orders", body, send(stamp(1), "hunter2", "")...), http.StatusAccepted)
	assert.NotEqual(t, first.ID, later.ID)
}

func TestEqualRequestsWithoutATimeAreNotRepetitions(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("orders", signed(trigger.HMAC{}))
	for range 2 {
		accepted(t, b.post("orders", `{}`, "X-Signature-256", sign("hunter2", `{}`)), http.StatusAccepted)
	}
}

func TestSecretsAreReplacedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	h := b.hook("orders", signed(trigger.HMAC{}))
	for _, key := range []string{"hunter1", "hunter2"} {
		accepted(t, b.post("orders", `{}`, "X-Signature-256", sign(key, `{}`)), http.StatusAccepted)
	}
	b.secrets["OLD"] = ""
	h = b.put(h.Definition)
	accepted(t, b.post("orders", `{}`, "X-Signature-256", sign("hunter2", `{}`)), http.StatusAccepted)
	refused(t, b.post("orders", `{}`, "X-Signature-256", sign("hunter1", `{}`)), http.StatusUnauthorized, "hook_unauthorized")
	report := b.Report(h.Stored)
	assert.Equal(t, trigger.StateRunning, report.State)
	if assert.Len(t, report.Notes, 1) {
		assert.Contains(t, report.Notes[0].Message, "OLD")
	}

	b.secrets["KEY"] = ""
	h = b.put(h.Definition)
	w := b.post("orders", `{}`, "X-Signature-256", sign("", `{}`))
	p := refused(t, w, http.StatusServiceUnavailable, "hook_unavailable")
	assert.NotContains(t, p.Detail, "KEY", "strangers are not told")
	assert.Contains(t, b.logs.String(), "KEY")
	report = b.Report(h.Stored)
	assert.Equal(t, trigger.StateError, report.State)
	assert.Equal(t, "secret_missing", report.Cause.Code)

	b.secrets["KEY"] = "hunter2"
	accepted(t, b.post("orders", `{}`, "X-Signature-256", sign("hunter2", `{}`)), http.StatusAccepted)
}

func TestBearerAndBasic(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hook("bearer", trigger.Webhook{Auth: trigger.WebhookAuth{Bearer: &trigger.SecretRef{Env: "KEY"}}})
	b.hook("basic", trigger.Webhook{Auth: trigger.WebhookAuth{Basic: &trigger.Basic{Username: "ci", Password: trigger.SecretRef{Env: "KEY"}}}})
	basic := func(user string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(user)) }
	for _, c := range []struct {
		hook, authorization string
		status              int
	}{
		{"bearer", "Bearer hunter2", 202}, {"bearer", "bearer  hunter2 ", 202}, {"bearer", "Bearer hunter1", 401}, {"bearer", "Bearer", 401},
		{"bearer", "", 401}, {"bearer", "hunter2", 401}, {"bearer", basic("ci:hunter2"), 401},
		{"basic", basic("ci:hunter2"), 202}, {"basic", basic("ci:hunter1"), 401}, {"basic", basic("root:hunter2"), 401}, {"basic", "Basic %", 401},
		{"basic", "", 401}, {"basic", "Bearer hunter2", 401},
	} {
		w := b.post(c.hook, `{}`, "Authorization", c.authorization)
		if assert.Equal(t, c.status, w.Code, "%s with %q", c.hook, c.authorization); c.status == 401 {
			assert.Contains(t, []string{`Bearer realm="millrace webhook"`, `Basic realm="millrace webhook"`}, w.Header().Get("WWW-Authenticate"))
			assert.NotContains(t, w.Body.String(), "hunter")
		}
	}
	assert.Len(t, b.received(), 3)
}
