package alerts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/secret"
)

// Document is what is posted.
type Document struct {
	// ID names the alert; with Status it names the post.
	ID     string `json:"id"`
	Alert  Kind   `json:"alert"`
	Status string `json:"status"`
	// Key is what the alert is about; a later alert about the same has the same key.
	Key        string          `json:"key"`
	Summary    string          `json:"summary"`
	Since      time.Time       `json:"since"`
	OpenedAt   time.Time       `json:"opened_at"`
	ResolvedAt *time.Time      `json:"resolved_at,omitempty"`
	Details    json.RawMessage `json:"details"`
}

// maxPosts is how many posts one turn makes at most.
const maxPosts = 50

// markTimeout bounds the note of what became of a post.
const markTimeout = 3 * time.Second

// newHTTP returns a client for posts to a receiver that may be anything.
func newHTTP() *http.Client {
	return &http.Client{
		Timeout: TimeoutDefault,
		// What is at the other end of a redirect is not what the secret is for.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

const dueAlerts = `
SELECT id::text, kind, status, key, summary, since, opened_at, resolved_at, details, attempts FROM alerts
WHERE sent_status IS DISTINCT FROM status AND next_attempt_at <= clock_timestamp() ORDER BY next_attempt_at LIMIT $1`

// send posts what is due. What fails is tried again later; others are not kept
// waiting by it.
func (w *Watcher) send(ctx context.Context, held *lease.Held) error {
	rows, err := w.cfg.Pool.Query(ctx, dueAlerts, maxPosts)
	if err != nil {
		return fmt.Errorf("read alerts to send: %w", err)
	}
	type due struct {
		Document
		attempts int
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (due, error) {
		var d due
		err := row.Scan(&d.ID, &d.Alert, &d.Status, &d.Key, &d.Summary, &d.Since, &d.OpenedAt, &d.ResolvedAt, &d.Details, &d.attempts)
		return d, err
	})
	if err != nil {
		return fmt.Errorf("read alerts to send: %w", err)
	}
	var errs []error
	for _, d := range list {
		if held.Remaining() < TimeoutDefault/2 {
			break // somebody else may be about to send
		}
		wait := w.backoff(d.attempts)
		// Before the post: one that was begun may have been received.
		_, err := w.cfg.Pool.Exec(ctx, `
			UPDATE alerts SET attempts = attempts + 1, next_attempt_at = clock_timestamp() + make_interval(secs => $2) WHERE id = $1::uuid`,
			d.ID, wait.Seconds())
		if err != nil {
			return fmt.Errorf("begin to send an alert: %w", err)
		}
		err = w.post(ctx, d.Document)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		errs = append(errs, w.mark(ctx, d.Document, wait, err))
	}
	return errors.Join(errs...)
}

// mark notes what became of a post.
func (w *Watcher) mark(ctx context.Context, d Document, wait time.Duration, failure error) error {
	// Also while stopping: what was told is told.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
	defer cancel()
	if failure == nil {
		w.posts.WithLabelValues("sent").Inc()
		_, err := w.cfg.Pool.Exec(ctx, `
			UPDATE alerts SET sent_status = $2, sent_at = clock_timestamp(), last_error = NULL WHERE id = $1::uuid`, d.ID, d.Status)
		return err
	}
	w.posts.WithLabelValues("failed").Inc()
	text := secret.Redact(failure.Error())
	w.cfg.Log.WarnContext(ctx, "alert was not sent, it will be repeated", "key", d.Key, "error", text, "next_in", wait)
	_, err := w.cfg.Pool.Exec(ctx, `UPDATE alerts SET last_error = $2 WHERE id = $1::uuid`, d.ID, text)
	return err
}

// backoff is the pause after so many failures before.
func (w *Watcher) backoff(attempts int) time.Duration {
	wait := w.cfg.BackoffMin
	for range attempts {
		if wait >= w.cfg.BackoffMax/2 {
			return w.cfg.BackoffMax
		}
		wait *= 2
	}
	return min(wait, w.cfg.BackoffMax)
}

// post sends one document. Errors do not repeat the URL.
func (w *Watcher) post(ctx context.Context, d Document) error {
	d.Status = map[string]string{"FIRING": "firing", "RESOLVED": "resolved"}[d.Status]
	body, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode alert: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cfg.URL.Reveal(), bytes.NewReader(body))
	if err != nil {
		return errors.New("post alert: the address is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "millrace/"+w.cfg.Version)
	req.Header.Set("Idempotency-Key", d.ID+"/"+d.Status)
	value, err := w.cfg.Secret()
	if err != nil {
		return fmt.Errorf("post alert: %w", err)
	}
	if !value.IsZero() {
		req.Header.Set(w.cfg.Header, value.Reveal())
	}
	resp, err := w.cfg.HTTP.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the rest repeats the URL
		}
		return fmt.Errorf("post alert: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // for the connection's sake
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("post alert: the receiver answered %s", resp.Status)
	}
	return nil
}
