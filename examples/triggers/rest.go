package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/trigger"
)

// payments come over HTTP, signed.
func (p *play) payments(ctx context.Context) error {
	p.say("")
	p.say("PAYMENTS: a signed request, the same once more, and one with another amount under the same signature")
	body, now := `{"order": 1, "cents": 100}`, fmt.Sprint(time.Now().Unix())
	mac := hmac.New(sha256.New, []byte(p.secret))
	fmt.Fprintf(mac, "%s.%s", now, body)
	signature := hex.EncodeToString(mac.Sum(nil))
	first, made, err := p.post(ctx, body, now, signature)
	if err != nil {
		return err
	}
	p.say("  %d: %s %v %s", first, made.Kind, made.Status, made.ID)
	again, known, err := p.post(ctx, body, now, signature)
	if err != nil {
		return err
	}
	p.say("  %d: %s %v %s", again, known.Kind, known.Status, known.ID)
	forged, refused, err := p.post(ctx, strings.Replace(body, "100", "1", 1), now, signature)
	if err != nil {
		return err
	}
	p.say("  %d: %s", forged, refused.Code)
	if err := p.until(ctx, "the payment is executed", func() (bool, error) { return len(p.work.of("payments")) > 0, nil }); err != nil {
		return err
	}
	p.promise(first == http.StatusAccepted && again == http.StatusOK && known.ID == made.ID, "the repetition has the answer of the first")
	done := p.work.of("payments")
	p.promise(forged == http.StatusUnauthorized && len(done) == 1 && done[0].execution == made.ID && done[0].Cents == 100,
		"one execution, of the first; what was forged started nothing")
	return nil
}

// answer is that of a webhook, or a problem.
type answer struct {
	// Status is a word, or the number of a problem.
	Status any    `json:"status"`
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Code   string `json:"code"`
}

func (p *play) post(ctx context.Context, body, now, signature string) (status int, a answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/hooks/payments", strings.NewReader(body))
	if err != nil {
		return 0, a, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Timestamp", now)
	r.Header.Set("X-Signature-256", signature)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, a, err
	}
	err = json.NewDecoder(resp.Body).Decode(&a)
	return resp.StatusCode, a, errors.Join(err, resp.Body.Close())
}

// leave has one of the two processes leave.
func (p *play) leave(ctx context.Context) error {
	owners, err := p.owners(ctx)
	if err != nil {
		return err
	}
	p.say("")
	p.say("PROCESSES: orders runs in %s, parcels in %s; second leaves", owners["orders"], owners["parcels"])
	began := time.Now()
	if err := p.parts.leave(); err != nil {
		return err
	}
	if err := p.until(ctx, "first runs both", func() (bool, error) {
		owners, err := p.owners(ctx)
		return owners["orders"] == "first" && owners["parcels"] == "first", err
	}); err != nil {
		return err
	}
	p.say("  first runs both, %.1f s later", time.Since(began).Seconds())
	number := p.options.orders + 1
	if err := p.kafka.send(ctx, p.order(number)); err != nil {
		return err
	}
	if err := p.until(ctx, "one more order is executed", func() (bool, error) { return len(p.work.of("orders")) >= p.options.orders+3, nil }); err != nil {
		return err
	}
	done := p.work.of("orders")
	p.promise(len(done) == p.options.orders+3 && done[len(done)-1].Order == number, "the next order is executed, and none once more")
	return nil
}

// owners returns which process runs each of the Kafka triggers.
func (p *play) owners(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, id := range []string{"orders", "parcels"} {
		s, err := p.api.TriggerStatus(ctx, id)
		if err != nil {
			return found, err
		}
		if len(s.Members) == 1 && s.Members[0].State == string(trigger.StateRunning) {
			found[id], _, _ = strings.Cut(s.Members[0].Owner, "/") // behind it: which run of the process
		}
	}
	return found, nil
}

// heartbeat has fired all the while.
func (p *play) heartbeat(ctx context.Context) error {
	p.say("")
	p.say("HEARTBEAT: it fires every second, in whichever process sees it first")
	if err := p.until(ctx, "the schedule has fired", func() (bool, error) { return len(p.work.of("heartbeat")) >= p.firings, nil }); err != nil {
		return err
	}
	if _, err := p.api.SwitchTrigger(ctx, "heartbeat", false); err != nil {
		return err
	}
	var firings []client.Firing
	started := 0
	if err := p.until(ctx, "all firings are settled", func() (bool, error) {
		firings, started = nil, 0
		for f, err := range p.api.Firings(ctx, "heartbeat", "", 100) {
			if err != nil || f.Status == "due" {
				return false, err
			}
			if f.Status == "started" {
				started++
			}
			firings = append(firings, f)
		}
		return started <= len(p.work.of("heartbeat")), nil
	}); err != nil {
		return err
	}
	// They come the latest first.
	gaps := 0
	for i := 1; i < len(firings); i++ {
		if firings[i-1].ScheduledAt.Sub(firings[i].ScheduledAt) != time.Second {
			gaps++
		}
	}
	times := map[time.Time]bool{}
	for _, j := range p.work.of("heartbeat") {
		times[j.ScheduledAt] = true
	}
	p.promise(gaps == 0, "%d firings, from %s to %s, without a gap and one for a time", len(firings),
		firings[len(firings)-1].ScheduledAt.Format(time.TimeOnly), firings[0].ScheduledAt.Format(time.TimeOnly))
	p.promise(len(times) == started && len(p.work.of("heartbeat")) == started, "%d executions, one for each that was not switched off before its turn", started)
	return nil
}

// compare asks the API for what has been started, and holds it against what was done. Lists
// are a read model, which follows what happens.
func (p *play) compare(ctx context.Context) error {
	p.say("")
	for _, id := range []string{"orders", "payments", "heartbeat"} {
		done := len(p.work.of(id))
		var found, completed int
		if err := p.until(ctx, "the executions of "+id+" are listed, and have ended", func() (bool, error) {
			found, completed = 0, 0
			for e, err := range p.api.List(ctx, client.Filter{Labels: map[string]string{"trigger": p.uids[id]}}) {
				if err != nil || !client.Final(e.State) {
					return false, err
				}
				found++
				if e.State == client.Completed {
					completed++
				}
			}
			return found >= done, nil
		}); err != nil {
			return err
		}
		p.promise(found == done && completed == done, "%s: %d executions, %d completed, and their work was done %d times", id, found, completed, done)
		p.started += found
	}
	return nil
}
