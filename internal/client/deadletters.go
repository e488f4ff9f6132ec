package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// DeadLetter is a record that a consumer gave up on. Value, headers and actions
// are not in lists.
type DeadLetter struct {
	ID            string     `json:"id"`
	Status        string     `json:"status"`
	Consumer      string     `json:"consumer"`
	ConsumerGroup string     `json:"consumer_group"`
	Topic         string     `json:"topic"`
	Partition     int32      `json:"partition"`
	Offset        int64      `json:"offset"`
	RecordTime    *time.Time `json:"record_time,omitempty"`
	Key           *Bytes     `json:"key,omitempty"`

	EventType     string `json:"event_type,omitempty"`
	EventSource   string `json:"event_source,omitempty"`
	EventID       string `json:"event_id,omitempty"`
	ReplaySession string `json:"replay_session,omitempty"`

	Class         string    `json:"class"`
	Reason        string    `json:"reason"`
	Error         string    `json:"error,omitempty"`
	ErrorType     string    `json:"error_type,omitempty"`
	CauseType     string    `json:"cause_type,omitempty"`
	Fingerprint   string    `json:"fingerprint"`
	Attempts      int       `json:"attempts"`
	FirstFailedAt time.Time `json:"first_failed_at"`
	LastFailedAt  time.Time `json:"last_failed_at"`
	ReplayCount   int       `json:"replay_count"`
	RedriveOf     string    `json:"redrive_of,omitempty"`

	// Lane is what waits behind it, if anything has to.
	Lane *Lane `json:"lane,omitempty"`
	// NextRetry is when a policy redrives it.
	NextRetry *struct {
		Policy string    `json:"policy"`
		At     time.Time `json:"at"`
		Held   bool      `json:"held,omitempty"`
	} `json:"next_retry,omitempty"`
	ArchivedAt *time.Time `json:"archived_at,omitempty"`
	Origin     string     `json:"origin,omitempty"`
	Edits      int        `json:"edits,omitempty"`

	Value     *Bytes             `json:"value,omitempty"`
	ValueJSON json.RawMessage    `json:"value_json,omitempty"`
	Headers   []DeadLetterHeader `json:"headers,omitempty"`
	History   []FailedAttempt    `json:"history,omitempty"`
	Stack     string             `json:"stack,omitempty"`
	Edited    *EditedRecord      `json:"edited,omitempty"`
	EditLog   []DeadLetterEdit   `json:"edit_log,omitempty"`
	Actions   []DeadLetterAction `json:"actions,omitempty"`
}

// FailedAttempt is an attempt that failed.
type FailedAttempt struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Records int       `json:"records"`
	Error   string    `json:"error"`
}

// EditedRecord is the record that a redrive sends after an edit.
type EditedRecord struct {
	Key       *Bytes             `json:"key,omitempty"`
	Value     *Bytes             `json:"value,omitempty"`
	ValueJSON json.RawMessage    `json:"value_json,omitempty"`
	Headers   []DeadLetterHeader `json:"headers,omitempty"`
}

// DeadLetterEdit is an edit that was made, with how it changed the record.
type DeadLetterEdit struct {
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	Forced  bool      `json:"forced,omitempty"`
	Changes []struct {
		Where string `json:"where"`
		Old   *Bytes `json:"old,omitempty"`
		New   *Bytes `json:"new,omitempty"`
	} `json:"changes"`
}

// Bytes are text where they are UTF-8. Nil stands for none at all.
type Bytes struct {
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

// DeadLetterHeader is one header of a record.
type DeadLetterHeader struct {
	Name  string `json:"name"`
	Value *Bytes `json:"value,omitempty"`
}

// DeadLetterAction is what somebody did with a dead letter.
type DeadLetterAction struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Reason string    `json:"reason,omitempty"`
	Forced bool      `json:"forced,omitempty"`
	Detail string    `json:"detail,omitempty"`
	// RedriveID is the redrive of many that it was part of.
	RedriveID string `json:"redrive_id,omitempty"`
}

// DeadLetterGroup is the dead letters with one fingerprint.
type DeadLetterGroup struct {
	Fingerprint string    `json:"fingerprint"`
	Consumer    string    `json:"consumer"`
	Class       string    `json:"class"`
	Reason      string    `json:"reason"`
	Count       int64     `json:"count"`
	FirstSeen   time.Time `json:"first_seen"`
	LastSeen    time.Time `json:"last_seen"`
}

// DeadLetterFilter selects dead letters. Fields that are empty select all.
type DeadLetterFilter struct {
	// Statuses are for lists and groups: a redrive by filter takes OPEN ones.
	Statuses []string `json:"-"`
	// Parking selects those that later events of their key wait for. It is for lists
	// and groups too.
	Parking bool `json:"-"`
	// Archived is "only" or "any", or empty for those that are not archived. It is for
	// lists and groups.
	Archived     string     `json:"-"`
	Topic        string     `json:"topic,omitempty"`
	Consumer     string     `json:"consumer,omitempty"`
	Type         string     `json:"type,omitempty"`
	Class        string     `json:"class,omitempty"`
	Fingerprint  string     `json:"fingerprint,omitempty"`
	Key          string     `json:"key,omitempty"`
	FailedAfter  *time.Time `json:"failed_after,omitempty"`
	FailedBefore *time.Time `json:"failed_before,omitempty"`
}

func (f DeadLetterFilter) query() url.Values {
	q := url.Values{}
	for _, s := range f.Statuses {
		q.Add("status", s)
	}
	for name, value := range map[string]string{
		"topic": f.Topic, "consumer": f.Consumer, "type": f.Type, "class": f.Class, "fingerprint": f.Fingerprint, "key": f.Key,
		"archived": f.Archived,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Parking {
		q.Set("parking", "true")
	}
	for name, at := range map[string]*time.Time{"failed_after": f.FailedAfter, "failed_before": f.FailedBefore} {
		if at != nil {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// DeadLetters returns all dead letters that the filter selects, the last failure
// first, and asks for each page of pageSize as it is needed. It ends with the
// first error.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter, pageSize int) iter.Seq2[DeadLetter, error] {
	q := f.query()
	q.Set("page_size", strconv.Itoa(pageSize))
	return pages(ctx, c, []string{"dead-letters"}, q, func(p struct {
		DeadLetters []DeadLetter `json:"dead_letters"`
		pageEnd
	}) ([]DeadLetter, string) {
		return p.DeadLetters, p.NextPageToken
	})
}

// DeadLetterGroups returns the largest groups of dead letters, at most limit.
func (c *Client) DeadLetterGroups(ctx context.Context, f DeadLetterFilter, limit int) ([]DeadLetterGroup, error) {
	q := f.query()
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var answer struct {
		Groups []DeadLetterGroup `json:"groups"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"dead-letters", "groups"}, query: q}, &answer)
	return answer.Groups, err
}

// DeadLetter returns one dead letter with its record.
func (c *Client) DeadLetter(ctx context.Context, id string) (DeadLetter, error) {
	var l DeadLetter
	err := c.do(ctx, call{method: http.MethodGet, path: []string{"dead-letters", id}}, &l)
	return l, err
}

// LetterOutcome is what became of one dead letter.
type LetterOutcome struct {
	ID      string   `json:"id"`
	Done    bool     `json:"done"`
	Problem *Problem `json:"problem,omitempty"`
}

// Discard says that a record is not needed, and why.
func (c *Client) Discard(ctx context.Context, id, reason string) (DeadLetter, error) {
	body := struct {
		Reason string `json:"reason"`
	}{reason}
	var l DeadLetter
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"dead-letters", id, "discard"}, body: body}, &l)
	return l, err
}

// LetterEdit says what to change in the record of a dead letter. What is nil stays.
type LetterEdit struct {
	Value      *Bytes             `json:"value,omitempty"`
	Key        *Bytes             `json:"key,omitempty"`
	Headers    []DeadLetterHeader `json:"headers,omitzero"`
	AfterEdits *int               `json:"after_edits,omitempty"`
	// ForceSchema lets a record pass that breaks the schema of its type.
	ForceSchema bool   `json:"force_schema,omitempty"`
	Reason      string `json:"reason"`
}

// EditLetter changes the record that a redrive sends.
func (c *Client) EditLetter(ctx context.Context, id string, e LetterEdit) (DeadLetter, error) {
	var l DeadLetter
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"dead-letters", id, "edit"}, body: e}, &l)
	return l, err
}

// LetterSelection is dead letters by name, or all that a filter selects.
type LetterSelection struct {
	Filter   *DeadLetterFilter `json:"filter,omitempty"`
	Statuses []string          `json:"statuses,omitempty"`
	IDs      []string          `json:"ids,omitempty"`
	Reason   string            `json:"reason,omitempty"`
}

// LettersChanged is what became of a selection.
type LettersChanged struct {
	Changed int64           `json:"changed"`
	Results []LetterOutcome `json:"results"`
}

// RefileLetters archives, restores or deletes dead letters: the verbs are archive,
// restore and delete.
func (c *Client) RefileLetters(ctx context.Context, verb string, s LetterSelection) (LettersChanged, error) {
	var answer LettersChanged
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"dead-letters:" + verb}, body: s}, &answer)
	return answer, err
}
