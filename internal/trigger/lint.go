package trigger

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// lint warns of what can be run and is probably not what was meant. written is the
// definition without its defaults.
func (c *checker) lint(t *Compiled, written *Definition, installed Defaults) {
	c.lintOrder(t)
	c.lintLimits(t)
	c.lintExpressions(t)
	c.lintScripts(t.Target.Execution)
	if t.Kafka != nil {
		c.lintKafka(t.Kafka, written.Kafka, installed)
	}
	if t.Webhook != nil {
		c.lintWebhook(t.Webhook)
	}
}

// lintOrder warns where messages come in an order that their targets lose.
func (c *checker) lintOrder(t *Compiled) {
	switch {
	case t.Type != TypeKafka:
	case t.Target.Workflow != nil:
		c.warn("/target/workflow", CodeUnordered, "starts instances in the order of each partition, and they run side by side").
			hint(`for order by key make it an execution: {"executor": "workflow", "concurrency_key": "${key}", "spec": {"definition_id": ...}}`)
	case t.Target.Execution != nil && t.Target.Execution.ConcurrencyKey == "":
		c.warn("/target/execution", CodeUnordered, "has no concurrency_key: executions are made in the order of each partition, and run in any order").
			hint(`for order by key write "concurrency_key": "${key}"`)
	}
}

func (c *checker) lintLimits(t *Compiled) {
	switch {
	case t.Limits.Open > 0 && t.LimitAction == LimitQueue:
		c.warn("/limits/open", CodeNoEffect, "bounds nothing where limit_action is queue: all is made, and waits for its turn in the queue").
			hint("choose limit_action reject or stall, or bound what runs at once by coordinator.limits")
	case t.Limits.Open == 0 && (t.LimitAction == LimitReject || t.LimitAction == LimitStall):
		c.warn("/limit_action", CodeNoEffect, "is of no use without limits.open")
	}
}

// headerNames finds names of headers in expressions.
var headerNames = regexp.MustCompile(`headers\s*\??\.?\[\s*["']([^"']+)["']\s*\]`)

// lintExpressions warns of variables that never have a value.
func (c *checker) lintExpressions(t *Compiled) {
	never := map[Type][]string{TypeWebhook: {variableKey}, TypeSchedule: {variableKey, variableHeaders, variableEvent}}[t.Type]
	for _, one := range c.templates {
		one.expressions(func(pointer string, x *expression) {
			for _, name := range x.names {
				if slices.Contains(never, name) {
					c.warn(pointer, CodeNoValue, "uses %s, which is never there for a trigger of type %s", name, t.Type)
				}
			}
			for _, found := range headerNames.FindAllStringSubmatch(x.String(), -1) {
				if lower := strings.ToLower(found[1]); lower != found[1] && t.Type == TypeWebhook {
					c.warn(pointer, CodeNoValue, "uses the header %s, whose letters may have another case when it comes", found[1]).hint("write it in lower case: headers[%q]", lower)
				}
			}
		})
	}
}

// lintScripts warns where a message becomes code.
func (c *checker) lintScripts(e *ExecutionTemplate) {
	if e == nil {
		return
	}
	const spec = "/target/execution/spec"
	inline := inlineScript(e.Spec)
	for _, one := range c.templates {
		one.expressions(func(pointer string, x *expression) {
			if pointer == spec+"/script" || inline != "" && pointer == spec+inline {
				c.warn(pointer, CodeInjection, "puts ${%s} into a program's text: whoever sends the message can have anything run", x).
					hint(`hand it over as data: in env, stdin or an argument of its own`)
			}
		})
	}
}

// inlineScript is where in a spec the program of a shell is that is given by -c.
func inlineScript(raw json.RawMessage) string {
	var spec struct {
		Command []string `json:"command"`
	}
	if !bytes.Contains(raw, []byte(`"command"`)) || json.Unmarshal(raw, &spec) != nil {
		return ""
	}
	at := slices.IndexFunc(spec.Command, func(word string) bool { return strings.HasPrefix(word, "-") && strings.HasSuffix(word, "c") })
	if at < 1 || at+1 >= len(spec.Command) {
		return ""
	}
	return item("/command", at+1)
}

func (c *checker) lintKafka(k, written *Kafka, installed Defaults) {
	if written.Batch > k.PrefetchCount {
		c.warn("/kafka/batch", CodeNoEffect, "is more than prefetch_count (%d): no more than that are there at a time", k.PrefetchCount)
	}
	if clear := k.SASL.Mechanism; (clear == SASLPlain || clear == SASLOAuthBearer) && !k.TLS.Enabled {
		c.warn("/kafka/sasl", CodePlaintext, "sends its secret over the network as it is: %s without TLS", clear).hint("set tls.enabled, or use SCRAM-SHA-512")
	}
	if len(k.Brokers) > 0 {
		return
	}
	for i, topic := range k.Topics {
		if slices.Contains(installed.OwnTopics, topic) {
			c.warn(item("/kafka/topics", i), CodeLoop, "is a topic of Millrace itself: what the trigger starts may write to it, which starts more, without end")
		}
	}
}

func (c *checker) lintWebhook(w *Webhook) {
	if w.Auth.None {
		c.warn("/webhook/auth/none", CodeOpen, "lets everybody start this who can reach the server").hint("use hmac, bearer or basic")
	}
	if h := w.Auth.HMAC; h != nil && h.Algorithm == AlgorithmSHA1 {
		c.warn("/webhook/auth/hmac/algorithm", CodeWeak, "sha1 is only for senders that have nothing better")
	}
}
