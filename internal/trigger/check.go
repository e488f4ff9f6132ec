package trigger

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/rawjson"
	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/topics"
)

// Bounds of a definition.
const (
	MaxIDBytes          = 63
	MaxDescriptionBytes = 4096
	MaxMembers          = 64
	MaxAlertAfter       = 30 * 24 * time.Hour
	MaxOpen             = 1_000_000
	// MaxDocumentBytes bounds a definition as a whole.
	MaxDocumentBytes = 256 << 10
)

var idFormat = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

// newChecker returns a checker with its decoder.
func newChecker() *checker { return &checker{json: new(strictjson.Decoder)} }

// definition checks everything but the target. written is what the user wrote, d the same
// with its defaults.
func (c *checker) definition(written, d *Definition, installed Defaults) {
	c.id(d.ID)
	c.text("/description", d.Description, MaxDescriptionBytes, true)
	c.text("/tenant", d.Tenant, execution.MaxNameBytes, false)
	c.text("/user", d.User, execution.MaxNameBytes, false)
	c.source(d)
	c.targets(d.Target)
	c.whole("/limits/open", d.Limits.Open, 0, MaxOpen)
	c.oneOf("/limit_action", string(d.LimitAction), string(LimitQueue), string(LimitReject), string(LimitStall))
	c.members(d)
	c.poison(d)
	c.span("/alert_after", d.AlertAfter, MaxAlertAfter)
	if k := d.Kafka; k != nil {
		c.kafka(k, installed)
	}
	if w := d.Webhook; w != nil {
		c.webhook(w, installed)
	}
	if s := d.Schedule; s != nil {
		c.schedule(s, written.Schedule)
	}
}

func (c *checker) id(id string) {
	switch {
	case id == "":
		c.add("/id", CodeRequired, "is required: the name of the trigger")
	case len(id) > MaxIDBytes:
		c.add("/id", CodeTooLong, "has %d bytes, %d are allowed", len(id), MaxIDBytes)
	case !idFormat.MatchString(id):
		c.add("/id", CodeInvalid, "is no name of a trigger: lower-case letters, digits, '-', '_' and '.' are, the first a letter or digit")
	}
}

// text checks a text that people wrote; lines says that it may have several.
func (c *checker) text(pointer, text string, limit int, lines bool) {
	control := func(r rune) bool { return unicode.IsControl(r) && (!lines || r != '\n' && r != '\t') }
	switch {
	case len(text) > limit:
		c.add(pointer, CodeTooLong, "has %d bytes, %d are allowed", len(text), limit)
	case !utf8.ValidString(text):
		c.add(pointer, CodeInvalid, "is not UTF-8")
	case strings.ContainsFunc(text, control):
		c.add(pointer, CodeInvalid, "contains a control character")
	}
}

func (c *checker) oneOf(pointer, value string, words ...string) {
	if value != "" && !slices.Contains(words, value) {
		c.add(pointer, CodeInvalid, "is not one of %s", strings.Join(words, ", "))
	}
}

func (c *checker) whole(pointer string, value, low, high int) {
	if value < low || value > high {
		c.add(pointer, CodeRange, "must be between %d and %d, not %d", low, high, value)
	}
}

func (c *checker) span(pointer string, d topics.Duration, limit time.Duration) {
	if d < 0 || d.Std() > limit {
		c.add(pointer, CodeRange, "must be between 0s and %s, not %s", limit, d.Std())
	}
}

// source checks that there is one, that of the type.
func (c *checker) source(d *Definition) {
	has := map[Type]bool{TypeKafka: d.Kafka != nil, TypeWebhook: d.Webhook != nil, TypeSchedule: d.Schedule != nil}
	count := 0
	for _, there := range has {
		if there {
			count++
		}
	}
	there, known := has[d.Type]
	switch {
	case d.Type == "" && count == 0:
		c.add("/type", CodeRequired, "is required: kafka, webhook or schedule, with the field of that name")
	case d.Type == "":
		c.add("/type", CodeConflict, "is missing, and there is more than one of kafka, webhook and schedule: a trigger has one source").
			hint("make a trigger of each")
	case !known:
		c.add("/type", CodeInvalid, "is not one of kafka, webhook, schedule")
	case !there:
		c.add("/"+string(d.Type), CodeRequired, "is required for a trigger of type %s", d.Type)
	}
	for _, t := range []Type{TypeKafka, TypeWebhook, TypeSchedule} {
		if has[t] && known && t != d.Type {
			c.add("/"+string(t), CodeConflict, "is not for a trigger of type %s", d.Type)
		}
	}
}

func (c *checker) targets(t Target) {
	switch {
	case t.Execution == nil && t.Workflow == nil:
		c.add("/target", CodeRequired, "must have one of execution, workflow: what a message starts")
	case t.Execution != nil && t.Workflow != nil:
		c.add("/target", CodeConflict, "must have one of execution, workflow, not both").hint("make two triggers; of Kafka, with a group each")
	}
}

func (c *checker) members(d *Definition) {
	c.whole("/members", d.Members, 0, MaxMembers)
	switch {
	case d.Members > 1 && d.Type == TypeSchedule:
		c.add("/members", CodeConflict, "must be 1: a schedule fires once, whatever dies").hint("it is taken over within seconds when its process dies")
	case d.Members > 0 && d.Type == TypeWebhook:
		c.add("/members", CodeConflict, "is not for webhooks: they are served by every process that serves the API")
	}
}

func (c *checker) poison(d *Definition) {
	c.oneOf("/on_poison", string(d.OnPoison), string(PoisonDeadLetter), string(PoisonStall))
	switch {
	case d.OnPoison == "" || d.Type == TypeKafka:
	case d.Type == TypeWebhook:
		c.add("/on_poison", CodeConflict, "is for Kafka triggers: who calls a webhook is told what is wrong with the request (400 or 422)")
	case d.Type == TypeSchedule:
		c.add("/on_poison", CodeConflict, "is for Kafka triggers: a schedule has no messages of others")
	}
}

// secret checks a reference; required says that there has to be one.
func (c *checker) secret(pointer string, r SecretRef, s Secrets, required bool) {
	switch {
	case r.IsZero():
		if required {
			c.add(pointer, CodeRequired, `is required: where the secret is, {"env": ...} or {"file": ...}`)
		}
	case r.Env != "" && r.File != "":
		c.add(pointer, CodeConflict, "must have one of env, file, not both")
	default:
		field := "/file"
		if r.Env != "" {
			field = "/env"
		}
		if err := s.Check(r); err != nil {
			c.add(pointer+field, CodeSecret, "%s", err.Message).Hint = err.Hint
		}
	}
}

// Check says whether a definition may have a reference to a secret, by its name alone:
// where symbolic links lead is for who reads the file. Nil: it may.
func (s Secrets) Check(r SecretRef) *SecretError {
	if s.Unknown {
		return nil
	}
	if r.Env != "" {
		return s.checkEnv(r.Env)
	}
	return s.checkFile(r.File)
}

// SecretError says why a secret may not be referred to.
type SecretError struct{ Message, Hint string }

// Error implements error.
func (e *SecretError) Error() string { return e.Message + ": " + e.Hint }

var envFormat = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkEnv says whether an environment variable may be named.
func (s Secrets) checkEnv(name string) *SecretError {
	switch {
	case s.EnvPrefix == "":
		return &SecretError{"environment variables may not be named", "set triggers.secrets.env_prefix on the servers"}
	case !envFormat.MatchString(name):
		return &SecretError{"is no name of an environment variable", "name a variable of the servers, not the secret itself"}
	case !strings.HasPrefix(name, s.EnvPrefix) || name == s.EnvPrefix:
		return &SecretError{
			"must begin with " + s.EnvPrefix,
			"the variables of that name are those that triggers may read (triggers.secrets.env_prefix)",
		}
	}
	return nil
}

// checkFile says whether a file may be named: a path below the folder.
func (s Secrets) checkFile(name string) *SecretError {
	relative := name
	if strings.HasPrefix(name, "/") {
		relative, _ = strings.CutPrefix(name, strings.TrimSuffix(s.Dir, "/")+"/")
	}
	switch {
	case s.Dir == "":
		return &SecretError{"files may not be named", "set triggers.secrets.dir on the servers"}
	case strings.ContainsRune(name, 0):
		return &SecretError{"contains a zero byte", "name a file"}
	case strings.HasPrefix(relative, "/") || slices.Contains(strings.Split(relative, "/"), ".."):
		return &SecretError{"must lie below the folder of secrets", "give the path from triggers.secrets.dir on"}
	}
	return nil
}

// sorted returns the faults in the order of the fields of a definition.
func (c *checker) sorted() []Fault {
	order := []string{"", "id", "description", "type", "enabled", "tenant", "user", "kafka", "webhook", "schedule", "target", "limits", "limit_action", "on_poison", "members", "alert_after"}
	rank := func(f Fault) int {
		first, _, _ := strings.Cut(strings.TrimPrefix(f.Pointer, "/"), "/")
		return slices.Index(order, first)
	}
	slices.SortStableFunc(c.faults, func(a, b Fault) int { return cmp.Compare(rank(a), rank(b)) })
	return c.faults
}

// object says whether raw is a JSON object, or nothing.
func object(raw json.RawMessage) bool { return len(raw) == 0 || rawjson.First(raw) == '{' }

func item(pointer string, i int) string { return pointer + "/" + strconv.Itoa(i) }
