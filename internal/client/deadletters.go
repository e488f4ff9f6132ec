package client

import (
	"context"
	"encoding/json"
	"errors"
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

	Value     *Bytes             `json:"value,omitempty"`
	ValueJSON json.RawMessage    `json:"value_json,omitempty"`
	Headers   []DeadLetterHeader `json:"headers,omitempty"`
	Actions   []DeadLetterAction `json:"actions,omitempty"`
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
	Parking      bool       `json:"-"`
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
	return func(yield func(DeadLetter, error) bool) {
		q := f.query()
		q.Set("page_size", strconv.Itoa(pageSize))
		for {
			var page struct {
				DeadLetters   []DeadLetter `json:"dead_letters"`
				NextPageToken string       `json:"next_page_token"`
			}
			if err := c.do(ctx, call{method: http.MethodGet, path: []string{"dead-letters"}, query: q}, &page); err != nil {
				yield(DeadLetter{}, err)
				return
			}
			for _, l := range page.DeadLetters {
				if !yield(l, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			if page.NextPageToken == q.Get("page_token") {
				yield(DeadLetter{}, errors.New("list dead letters: the server answers with the same page again"))
				return
			}
			q.Set("page_token", page.NextPageToken)
		}
	}
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

// Redrive says which dead letters to redrive: those with the IDs, or the OPEN ones
// of the Filter.
type Redrive struct {
	Filter *DeadLetterFilter `json:"filter,omitempty"`
	IDs    []string          `json:"ids,omitempty"`
	DryRun bool              `json:"dry_run,omitempty"`
	Max    int               `json:"max,omitempty"`
	Force  bool              `json:"force,omitempty"`
	Reason string            `json:"reason,omitempty"`
}

// RedriveResult is the answer to a Redrive.
type RedriveResult struct {
	DryRun bool `json:"dry_run,omitempty"`
	// Matched is how many letters were asked for.
	Matched  int64            `json:"matched"`
	Redriven int              `json:"redriven"`
	Refused  int              `json:"refused"`
	Results  []RedriveOutcome `json:"results"`
}

// RedriveOutcome is what became of one dead letter.
type RedriveOutcome struct {
	ID       string   `json:"id"`
	Redriven bool     `json:"redriven"`
	Problem  *Problem `json:"problem,omitempty"`
}

// Redrive gives records to their consumers again.
func (c *Client) Redrive(ctx context.Context, r Redrive) (RedriveResult, error) {
	var answer RedriveResult
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"dead-letters:redrive"}, body: r}, &answer)
	return answer, err
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
