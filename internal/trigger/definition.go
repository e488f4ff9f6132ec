package trigger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/topics"
)

// Type says what the source of a trigger is.
type Type string

// The types of triggers.
const (
	TypeKafka    Type = "kafka"
	TypeWebhook  Type = "webhook"
	TypeSchedule Type = "schedule"
)

// Definition is a trigger as a user has written it. What is left out has a default,
// which WithDefaults fills in; Origins tells which values are defaults.
type Definition struct {
	// ID names the trigger: 1 to 63 lower-case letters, digits, '-', '_' and '.', the first
	// a letter or digit.
	ID          string `json:"id"`
	Description string `json:"description,omitempty"`
	Type        Type   `json:"type"`
	// Enabled is true unless it says otherwise. A disabled trigger receives nothing; a
	// Kafka trigger keeps its place in its topics for as long as the brokers keep it.
	Enabled *bool `json:"enabled,omitempty"`
	// Tenant and User are whose executions and instances the targets are. Default: those
	// of who applied the trigger.
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`

	// Exactly one of these is set, that of Type.
	Kafka    *Kafka    `json:"kafka,omitempty"`
	Webhook  *Webhook  `json:"webhook,omitempty"`
	Schedule *Schedule `json:"schedule,omitempty"`

	Target Target `json:"target"`

	Limits Limits `json:"limits,omitzero"`
	// LimitAction says what becomes of a message beyond Limits. Default: queue.
	LimitAction LimitAction `json:"limit_action,omitempty"`
	// OnPoison says what becomes of a message of which no target can be made: it is no JSON
	// object, or the mapping does not fit it. Kafka triggers only; whoever calls a webhook
	// is told. Default: dead_letter.
	OnPoison OnPoison `json:"on_poison,omitempty"`
	// Members is how many processes run the trigger at once. Default: 1. More are of use to
	// Kafka triggers, which share partitions; the others run once.
	Members int `json:"members,omitempty"`
	// AlertAfter is how long a trigger may stand before an alert. Default: 1 h.
	AlertAfter topics.Duration `json:"alert_after,omitzero"`
}

// Target is what a message starts. Exactly one of the two is set.
type Target struct {
	Execution *ExecutionTemplate `json:"execution,omitempty"`
	Workflow  *WorkflowTemplate  `json:"workflow,omitempty"`
}

// ExecutionTemplate is a request for an execution in which strings may hold expressions:
// "${body.order.id}" is the value itself, whatever its type; "order-${body.order.id}" is
// text. The fields are those of POST /v1/executions, except for the idempotency key, which
// the message has.
type ExecutionTemplate struct {
	Executor       string          `json:"executor"`
	Spec           json.RawMessage `json:"spec"`
	Priority       json.RawMessage `json:"priority,omitempty"`
	ResourceClass  string          `json:"resource_class,omitempty"`
	Requirements   json.RawMessage `json:"requirements,omitempty"`
	ConcurrencyKey string          `json:"concurrency_key,omitempty"`
	NotBefore      string          `json:"not_before,omitempty"`
	Limits         json.RawMessage `json:"limits,omitempty"`
	Retry          json.RawMessage `json:"retry,omitempty"`
	Labels         json.RawMessage `json:"labels,omitempty"`
}

// WorkflowTemplate is an instance of a workflow, with expressions as of ExecutionTemplate.
type WorkflowTemplate struct {
	// ID is the definition's.
	ID string `json:"id"`
	// Version 0 is the latest at the time of the message.
	Version     int             `json:"version,omitempty"`
	BusinessKey string          `json:"business_key,omitempty"`
	Priority    json.RawMessage `json:"priority,omitempty"`
	// Input becomes the variables of the instance. Default: "${body}".
	Input json.RawMessage `json:"input,omitempty"`
}

// Limits bound what a trigger starts. Zero is no limit.
type Limits struct {
	// Open is how many of its targets may be unfinished at a time.
	Open int `json:"open,omitempty"`
}

// LimitAction says what becomes of a message beyond the limits of its trigger.
type LimitAction string

// The limit actions.
const (
	// LimitQueue makes the target all the same: it is the coordinator that has it wait.
	LimitQueue LimitAction = "queue"
	// LimitReject makes none: a Kafka message becomes a dead letter, a webhook answers 429,
	// a firing is skipped.
	LimitReject LimitAction = "reject"
	// LimitStall waits: a Kafka partition stalls, a webhook answers 503, a firing is tried
	// again.
	LimitStall LimitAction = "stall"
)

// OnPoison says what becomes of a message of which no target can be made.
type OnPoison string

// What becomes of poison.
const (
	PoisonDeadLetter OnPoison = "dead_letter"
	PoisonStall      OnPoison = "stall"
)

// SecretRef says where a secret is. Exactly one of the two is set. Which variables and
// files may be named is the installation's to say (triggers.secrets).
type SecretRef struct {
	Env  string `json:"env,omitempty"`
	File string `json:"file,omitempty"`
}

// Where a Kafka trigger begins in a partition without a position: Kafka.From.
const (
	FromEarliest = "earliest"
	FromLatest   = "latest"
)

// The mechanisms of SASL.
const (
	SASLPlain       = "PLAIN"
	SASLScram256    = "SCRAM-SHA-256"
	SASLScram512    = "SCRAM-SHA-512"
	SASLOAuthBearer = "OAUTHBEARER"
)

// The words of Schedule: Missed and Overlap.
const (
	MissedSkip = "skip"
	MissedOnce = "once"
	MissedAll  = "all"

	OverlapAllow = "allow"
	OverlapSkip  = "skip"
	OverlapWait  = "wait"
)

// IsZero reports whether nothing is referred to.
func (r SecretRef) IsZero() bool { return r == SecretRef{} }

// Kafka is a source: topics of some cluster.
type Kafka struct {
	// Brokers are host:port. Default: those of the installation, with their TLS and SASL.
	Brokers []string `json:"brokers,omitempty"`
	TLS     TLS      `json:"tls,omitzero"`
	SASL    SASL     `json:"sasl,omitzero"`
	Topics  []string `json:"topics"`
	// Group is the consumer group. Default: millrace-trigger-<id>. Once the trigger has been
	// applied it stays for ever, since the position in the topics is the group's.
	Group string `json:"group,omitempty"`
	// From is where a partition without a position begins: earliest (default) or latest.
	From string `json:"from,omitempty"`
	// Fetching ahead of a partition pauses when both are exceeded.
	PrefetchCount int `json:"prefetch_count,omitempty"` // default 10
	PrefetchBytes int `json:"prefetch_bytes,omitempty"` // default 102 400
	// MaxBytesPerFetch bounds one fetch. Default 1 048 576. A single larger record is
	// fetched all the same.
	MaxBytesPerFetch int `json:"max_bytes_per_fetch,omitempty"`
	// RateLimitPerSecond bounds the messages of the trigger per second and member. Default:
	// none.
	RateLimitPerSecond float64 `json:"rate_limit_per_second,omitempty"`
	// Batch is how many messages of one partition share a transaction. Default: 100; never
	// more than PrefetchCount has fetched.
	Batch int `json:"batch,omitempty"`
}

// TLS is how a Kafka trigger encrypts. Certificates are always verified.
type TLS struct {
	Enabled    bool      `json:"enabled,omitempty"`
	CA         SecretRef `json:"ca,omitzero"`
	Cert       SecretRef `json:"cert,omitzero"`
	Key        SecretRef `json:"key,omitzero"`
	ServerName string    `json:"server_name,omitempty"`
}

// SASL is how a Kafka trigger authenticates.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; empty is none.
	Mechanism string    `json:"mechanism,omitempty"`
	Username  string    `json:"username,omitempty"`
	Password  SecretRef `json:"password,omitzero"`
	Token     SecretRef `json:"token,omitzero"`
}

// Schedule is a source: times. Exactly one of Cron and At is set.
type Schedule struct {
	// Cron is five fields, six with seconds first, or @hourly and the like.
	Cron string `json:"cron,omitempty"`
	// TimeZone is a name of the IANA database. Default: UTC.
	TimeZone string `json:"time_zone,omitempty"`
	// At are one-off times.
	At []time.Time `json:"at,omitempty"`
	// From and Until bound the times of Cron.
	From  *time.Time `json:"from,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// Missed says what becomes of times that passed while nobody was there: skip (default
	// of Cron), once (default of At), or all, of which there are at most MissedMax (default
	// 100), the latest.
	Missed    string `json:"missed,omitempty"`
	MissedMax int    `json:"missed_max,omitempty"`
	// MissedAfter is from when on a time counts as missed. Default 1 min.
	MissedAfter topics.Duration `json:"missed_after,omitzero"`
	// Overlap says what becomes of a time while the target of the one before has not ended:
	// allow (default), skip, or wait, of which there are at most MissedMax; more are skipped.
	Overlap string `json:"overlap,omitempty"`
	// Jitter delays each firing by a part of it, which is the same in every process.
	Jitter topics.Duration `json:"jitter,omitzero"`
	// Input is what the mapping sees as body. Default: {}.
	Input json.RawMessage `json:"input,omitempty"`
}

// Export returns the definition as JSON that can be applied again, anywhere: what was
// written, and whose it is and whether it is enabled.
func (d Definition) Export() (json.RawMessage, error) {
	d.Enabled = new(d.IsEnabled())
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return nil, fmt.Errorf("encode trigger %s: %w", d.ID, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
