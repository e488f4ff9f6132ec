package hooks_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/server/hooks"
	"github.com/millrace/millrace/internal/trigger"
)

// FuzzRequests sends whatever to a webhook: it is taken or refused, and nothing breaks. The
// second hook takes signatures of any form, of which none can be good.
func FuzzRequests(f *testing.F) {
	for _, media := range []string{"application/json", "application/cloudevents+json", batchType, "application/x-www-form-urlencoded", "text/plain", ""} {
		f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/a","type":"t","data":{"a":[1]}}`), media, "", "1", "caf%C3%A9", "t=1700000000,v1=00")
		f.Add([]byte(`[{"specversion":"1.0","id":"1","source":"/a","type":"t"}]`), media, "1.0", "1", `"quoted"`, "v1, v1,")
		f.Add([]byte(`payload=%7B%7D&a=1&a=2`), media, "1.0", "%", "", "{id}")
		f.Add([]byte(`{"a/b":{"id":1}}`), media, "", "", "", "t=,v1=")
	}
	f.Fuzz(func(t *testing.T, body []byte, media, version, id, subject, signature string) {
		b := newBench(t, func(c *hooks.Config) { c.MaxWaiting = 10 })
		w := open()
		w.IdempotencyPointer = "/a~1b/id"
		b.hook("open", w)
		b.hook("signed", signed(trigger.HMAC{Style: trigger.StyleStripe, Signed: "{id}{{timestamp}.{body}{x}"}))
		r := b.request("open", string(body))
		r.Header = http.Header{
			"Content-Type": {media}, "Ce-Specversion": {version}, "Ce-Id": {id}, "Ce-Type": {"t"}, "Ce-Source": {"/s"}, "Ce-Subject": {subject},
		}
		known := []int{200, 202, 400, 413, 415, 422, 429, 503}
		if answer := b.serve(r); !slices.Contains(known, answer.Code) {
			// What the fake creator is told to do.
			if len(b.received()) == 0 {
				t.Errorf("%d: %s", answer.Code, answer.Body.String())
			}
		}
		r = b.request("signed", string(body), "Stripe-Signature", signature, "Idempotency-Key", id)
		if answer := b.serve(r); answer.Code != http.StatusUnauthorized {
			t.Errorf("%d: %s", answer.Code, answer.Body.String())
		}
	})
}
