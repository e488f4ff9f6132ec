package configs

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/topics"
)

// The bounds of numbers. They keep slips of the hand out, such as seconds where
// milliseconds were meant.
const (
	maxSlots      = 100_000
	maxInline     = 512 * KiB // an event has to fit into a record
	maxMemory     = 1 << 50
	maxGPUs       = 100_000
	maxPartitions = 10_000
	maxBatch      = 10_000
	maxBody       = GiB
	minConns      = 4
	maxLetters    = 1_000_000_000
	maxConns      = 10_000
	minRetention  = 24 * time.Hour // what is dropped are days
	leaseBeats    = 3              // heartbeats that fit into a lease, so that one may get lost
)

// Validate checks the values of the settings and how they go together. It does
// no I/O. The error is an *InvalidError with every fault.
func (c Config) Validate() error { return c.validate(nil) }

// validate is Validate that knows where values came from.
func (c *Config) validate(origins Origins) error {
	v := &validation{c: c, origins: origins}
	v.choices()
	v.positiveDurations()
	v.process()
	v.listeners()
	v.graphql()
	v.kafka()
	v.postgres()
	v.topics()
	v.coordinator()
	v.worker()
	v.kubernetes()
	v.triggers()
	v.eventLog()
	v.retention()
	v.alerts()
	v.replay()
	v.deadLetters()
	return v.found.err()
}

type validation struct {
	c       *Config
	origins Origins
	found   faults
}

func (v *validation) fault(path, format string, args ...any) {
	v.found.add(v.origins[path], path, format, args...)
}

func number[T int | int16 | int32 | Size | Cores](v *validation, path string, value, low, high T) {
	if value < low || value > high {
		v.fault(path, "must be between %v and %v, not %v", low, high, value)
	}
}

// choices checks every setting that has a fixed set of values.
func (v *validation) choices() {
	for _, f := range v.c.fields() {
		if len(f.Choices) == 0 {
			continue
		}
		values := []string{format(f.value)}
		if f.Type == "list" {
			values = listOf(f.value)
		}
		v.list(f, values)
		for _, value := range values {
			if !slices.Contains(f.Choices, value) {
				v.fault(f.Path, "%q is not one of %s%s", value, names(f.Choices), suggestion(value, f.Choices))
			}
		}
	}
}

// list checks that a list names something, and nothing twice.
func (v *validation) list(f *field, values []string) {
	if f.Type != "list" {
		return
	}
	if len(values) == 0 {
		v.fault(f.Path, "is empty: name at least one of %s", names(f.Choices))
	}
	seen := make(map[string]bool)
	for _, value := range values {
		if seen[value] {
			v.fault(f.Path, "names %s twice", value)
		}
		seen[value] = true
	}
}

// names joins accepted values for a message.
func names(choices []string) string {
	shown := slices.DeleteFunc(slices.Clone(choices), func(s string) bool { return s == "" })
	return strings.Join(shown, ", ")
}

func (v *validation) positiveDurations() {
	for _, f := range v.c.fields() {
		d, ok := f.value.Interface().(time.Duration)
		if ok && d <= 0 {
			v.fault(f.Path, "must be longer than 0, not %s", formatDuration(d))
		}
	}
}

func (v *validation) process() {
	c := v.c
	if c.Env != Production {
		return
	}
	if c.Embedded.Broker.Enabled {
		v.fault("embedded.broker.enabled", "the embedded broker is for development: with env production name a real one in kafka.brokers")
	}
	if c.Embedded.Postgres.Enabled {
		v.fault("embedded.postgres.enabled", "the embedded PostgreSQL is for development: with env production name a real one in postgres.dsn")
	}
}

// graphqlTimeout is less than a server takes to give up an answer.
const graphqlTimeout = 50 * time.Second

func (v *validation) graphql() {
	g := v.c.GraphQL
	number(v, "graphql.max_body_bytes", g.MaxBodyBytes, KiB, 16*MiB)
	number(v, "graphql.max_tokens", g.MaxTokens, 100, 20_000)
	number(v, "graphql.max_depth", g.MaxDepth, 3, 50)
	number(v, "graphql.max_cost", g.MaxCost, 1000, 100_000_000)
	number(v, "graphql.max_root_fields", g.MaxRootFields, 1, 1000)
	number(v, "graphql.max_aliases", g.MaxAliases, 1, 10_000)
	number(v, "graphql.max_directives", g.MaxDirectives, 1, 1000)
	number(v, "graphql.max_list_length", g.MaxListLength, 1, 10_000)
	number(v, "graphql.max_page_size", g.MaxPageSize, 1, 1000)
	number(v, "graphql.max_concurrent", g.MaxConcurrent, 1, 1000)
	if g.Timeout > graphqlTimeout {
		v.fault("graphql.timeout", "must be at most %s, not %s", formatDuration(graphqlTimeout), formatDuration(g.Timeout))
	}
}

func (v *validation) listeners() {
	c := v.c
	number(v, "api.max_body_bytes", c.API.MaxBodyBytes, KiB, maxBody)
	number(v, "api.max_streams", c.API.MaxStreams, 1, 100_000)
	tls := c.API.TLS
	v.pair("api.tls", tls.CertFile, tls.KeyFile)
	v.secureListener("api.listen", c.API.Listen)
	v.secureListener("grpc.listen", c.GRPC.Listen)
	number(v, "grpc.max_message_bytes", c.GRPC.MaxMessageBytes, 64*KiB, maxBody)
	v.openListener("admin.listen", c.Admin.Listen)
	v.openListener("embedded.broker.listen", c.Embedded.Broker.Listen)
	v.samePorts()
}

// isLoopback takes no name but localhost for this machine: any other may
// resolve to something else tomorrow.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (v *validation) kafka() {
	k := v.c.Kafka
	for _, broker := range k.Brokers {
		host, err := splitAddress(broker)
		if err == nil && (host == "" || strings.HasSuffix(broker, ":0")) {
			err = fmt.Errorf("want host:port, not %q", broker)
		}
		if err != nil {
			v.fault("kafka.brokers", "%s", err)
		}
	}
	if k.ReplicationFactor != -1 {
		number(v, "kafka.replication_factor", k.ReplicationFactor, 1, 100)
	}
	if k.ClientID == "" {
		v.fault("kafka.client_id", "is empty")
	}
	if k.SessionTimeout > 0 && k.HeartbeatInterval*3 > k.SessionTimeout {
		v.fault("kafka.heartbeat_interval", "must be at most a third of kafka.session_timeout (%s), not %s", formatDuration(k.SessionTimeout), formatDuration(k.HeartbeatInterval))
	}
	v.clientTLS(k.TLS)
	v.sasl(k.SASL)
}

// clientTLS refuses settings that would have no effect: to connect in the clear
// would be the worst reading of them.
func (v *validation) clientTLS(t ClientTLS) {
	v.pair("kafka.tls", t.CertFile, t.KeyFile)
	if !t.Enabled && t != (ClientTLS{}) {
		v.fault("kafka.tls.enabled", "is false, yet there are settings of TLS")
	}
}

func (v *validation) sasl(s SASL) {
	password := s.Username != "" || !s.Password.IsZero()
	token := !s.Token.IsZero() || s.TokenFile != ""
	switch s.Mechanism {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if s.Username == "" {
			v.fault("kafka.sasl.username", "is required by %s", s.Mechanism)
		}
		if s.Password.IsZero() {
			v.fault("kafka.sasl.password", "is required by %s", s.Mechanism)
		}
		if token {
			v.fault("kafka.sasl.token", "is not used by %s", s.Mechanism)
		}
	case "OAUTHBEARER":
		if s.Token.IsZero() == (s.TokenFile == "") {
			v.fault("kafka.sasl.token", "set either this or kafka.sasl.token_file for OAUTHBEARER")
		}
		if password {
			v.fault("kafka.sasl.username", "is not used by OAUTHBEARER, nor is a password")
		}
	case "":
		if password || token {
			v.fault("kafka.sasl.mechanism", "is unset, yet there are credentials: name one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER")
		}
	}
}

func (v *validation) postgres() {
	p := v.c.Postgres
	if p.MaxConns != 0 {
		number(v, "postgres.max_conns", p.MaxConns, minConns, maxConns)
	}
	if p.MinConns != 0 {
		number(v, "postgres.min_conns", p.MinConns, 0, maxConns)
	}
	if p.MaxConns != 0 && p.MinConns > p.MaxConns {
		v.fault("postgres.min_conns", "must be at most postgres.max_conns (%d), not %d", p.MaxConns, p.MinConns)
	}
	v.workflows()
	if dsn := p.DSN.Reveal(); dsn != "" && !looksLikeDSN(dsn) {
		v.fault("postgres.dsn", "want postgres://user@host:5432/database or host=... dbname=...")
	}
	if p.StorageLimit < 0 {
		v.fault("postgres.storage_limit", "must not be negative, not %v", p.StorageLimit)
	}
}

// looksLikeDSN is a first look; the driver parses it for good. Neither says what
// it saw, since it may hold a password.
func looksLikeDSN(dsn string) bool {
	if strings.Contains(dsn, "://") {
		u, err := url.Parse(dsn)
		return err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql")
	}
	return strings.Contains(dsn, "=")
}

// eventLog checks what is recorded. Whether topics of others exist is the broker's to
// say.
func (v *validation) eventLog() {
	seen := map[topics.Topic]bool{}
	for _, t := range v.c.EventLog.Topics {
		switch {
		case t == "":
			v.fault("event_log.topics", "names a topic that is empty")
		case seen[t]:
			v.fault("event_log.topics", "names %s twice", t)
		case t == topics.DeadLetters || t == topics.DataIndexDeadLetters:
			v.fault("event_log.topics", "names %s, whose records are filed as dead letters anyway", t)
		}
		seen[t] = true
	}
	if !seen[topics.ExecutionEvents] {
		v.fault("event_log.topics", "must contain %s: the histories of executions are read from the log", topics.ExecutionEvents)
	}
}

// retention leaves it to the start of the program to compare the windows with what
// the broker really keeps.
func (v *validation) retention() {
	r := v.c.Retention
	for path, keeps := range map[string]time.Duration{
		"retention.outbox": r.Outbox, "retention.inbox": r.Inbox, "retention.results": r.Results,
		"retention.events": r.Events, "retention.executions": r.Executions, "retention.instances": r.Instances,
		"retention.workflows": r.Workflows, "retention.firings": r.Firings,
	} {
		if keeps > 0 && keeps < minRetention {
			v.fault(path, "must be at least %s, not %s", formatDuration(minRetention), formatDuration(keeps))
		}
	}
	if r.Executions > 0 && r.Executions < r.Outbox {
		v.fault("retention.executions", "must be at least retention.outbox (%s), not %s: an event that is republished after that would tell of an execution that is gone",
			formatDuration(r.Outbox), formatDuration(r.Executions))
	}
	if r.Inbox < r.Outbox {
		v.fault("retention.inbox", "must be at least retention.outbox (%s), not %s: an event that is republished after that would be applied twice",
			formatDuration(r.Outbox), formatDuration(r.Inbox))
	}
}

func (v *validation) topics() {
	for _, t := range slices.Sorted(maps.Keys(v.c.Topics)) {
		table, path := v.c.Topics[t], "topics."+string(t)
		number(v, path+".partitions", table.Partitions, 1, maxPartitions)
		if table.Name == "" {
			v.fault(path+".name", "is empty")
		}
	}
	if err := v.c.TopicNaming().Validate(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			v.fault("topics", "%s", line)
		}
	}
}

func (v *validation) coordinator() {
	c := v.c.Coordinator
	for _, class := range slices.Sorted(maps.Keys(c.Classes)) {
		if topic := c.Classes[class].Topic; topic != "" {
			v.taskTopic("coordinator.classes."+class+".topic", topic)
		}
		v.class("coordinator.classes."+class, c.Classes[class])
	}
	v.limits()
	v.weights()
	number(v, "coordinator.queue_depth.user", c.QueueDepth.User, 0, maxQueue)
	number(v, "coordinator.queue_depth.total", c.QueueDepth.Total, 0, maxQueue)
	number(v, "coordinator.max_deliveries", c.MaxDeliveries, 1, 1000)
	number(v, "relay.batch_size", v.c.Relay.BatchSize, 1, maxBatch)
}

// taskTopic checks that a topic is one for tasks, and will be there.
func (v *validation) taskTopic(path string, t topics.Topic) {
	_, declared := v.c.Topics[t]
	switch {
	case t == topics.ExecutionTasks:
	case !topics.IsTaskTopic(t):
		v.fault(path, "%q is not a task topic: want execution_tasks, or execution_tasks_ and lower-case letters, digits and '_'", t)
	case !declared:
		v.fault(path, "the topic %s is not declared: add topics.%s", t, t)
	}
}

var resourceClass = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (v *validation) worker() {
	w := v.c.Worker
	number(v, "worker.slots", w.Slots, 1, maxSlots)
	number(v, "worker.cpu", w.CPU, 0, maxCores*1000)
	number(v, "worker.memory", w.Memory, 0, maxMemory)
	number(v, "worker.gpus", w.GPUs, 0, maxGPUs)
	number(v, "worker.max_output_bytes", w.MaxOutputBytes, 0, GiB)
	number(v, "worker.max_result_inline", w.MaxResultInline, 0, maxInline)
	number(v, "worker.max_result", w.MaxResult, 0, GiB)
	if w.MaxResult < w.MaxResultInline {
		v.fault("worker.max_result", "must be at least worker.max_result_inline (%s), not %s", w.MaxResultInline, w.MaxResult)
	}
	if len(w.ResourceClasses) == 0 {
		v.fault("worker.resource_classes", "is empty: name at least one")
	}
	for _, class := range w.ResourceClasses {
		if !resourceClass.MatchString(class) {
			v.fault("worker.resource_classes", "%q is not a resource class: want letters, digits, '_' and '-'", class)
		}
	}
	for i, t := range w.Topics {
		v.taskTopic("worker.topics", t)
		if slices.Contains(w.Topics[:i], t) {
			v.fault("worker.topics", "names %s twice", t)
		}
	}
	for _, dir := range w.Sandbox.Writable {
		if !filepath.IsAbs(dir) {
			v.fault("worker.sandbox.writable", "want absolute paths, not %q", dir)
		}
	}
	if w.Lease > 0 && w.Heartbeat > 0 && w.Heartbeat*leaseBeats >= w.Lease {
		v.fault("worker.heartbeat", "must be less than a third of worker.lease (%s), not %s", formatDuration(w.Lease), formatDuration(w.Heartbeat))
	}
}

// headerName is what a header may be called (RFC 9110, token).
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")

func (v *validation) replay() {
	number(v, "replay.max_running", v.c.Replay.MaxRunning, 1, 100)
	number(v, "replay.confirm_above", v.c.Replay.ConfirmAbove, 1, 1_000_000_000)
}

func (v *validation) alerts() {
	a := v.c.Alerts
	number(v, "alerts.dead_letters", a.DeadLetters, 0, maxLetters)
	if !headerName.MatchString(a.Header) {
		v.fault("alerts.header", "%q is not the name of a header", a.Header)
	}
	if !a.Secret.IsZero() && a.SecretFile != "" {
		v.fault("alerts.secret", "set either this or alerts.secret_file")
	}
	if strings.ContainsAny(a.Secret.Reveal(), "\r\n\x00") {
		v.fault("alerts.secret", "has a line break in it: a header cannot carry that")
	}
	if a.Webhook.IsZero() {
		if !a.Secret.IsZero() || a.SecretFile != "" {
			v.fault("alerts.webhook", "is unset, yet there is a secret for it")
		}
		return
	}
	// The text is not repeated: it may hold a secret.
	u, err := url.Parse(a.Webhook.Reveal())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		v.fault("alerts.webhook", "want http://host/path or https://host/path")
	}
}
