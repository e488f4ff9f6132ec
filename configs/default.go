package configs

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/topics"
)

// Role is a part of Millrace that a process may play.
type Role string

// The roles.
const (
	// RoleAPI serves the REST API.
	RoleAPI Role = "api"
	// RoleWorkflows fires the timers of workflow instances, and gives jobs to others whose
	// workers went away.
	RoleWorkflows Role = "workflows"
	// RoleTriggers ingests from Kafka topics of users, and fires schedules.
	RoleTriggers Role = "triggers"
	// RoleCoordinator admits executions.
	RoleCoordinator Role = "coordinator"
	// RoleWorker runs executions.
	RoleWorker Role = "worker"
	// RoleProjections builds the read models.
	RoleProjections Role = "projections"
	// RoleRelay publishes the outbox.
	RoleRelay Role = "relay"
	// RoleMaintenance records the event log, sweeps leases and enforces retention.
	RoleMaintenance Role = "maintenance"
)

// AllRoles returns every role. The caller may change the slice.
func AllRoles() []Role {
	return []Role{RoleAPI, RoleTriggers, RoleWorkflows, RoleCoordinator, RoleWorker, RoleProjections, RoleRelay, RoleMaintenance}
}

// The values of Config.Env and Auth.Mode.
const (
	Development = "development"
	Production  = "production"
	AuthToken   = "token"
	AuthOff     = "off"

	// The places of long results: results.store.
	ResultsPostgres  = "postgres"
	ResultsDirectory = "directory"

	// The ways of jobs to workers: jobs.dispatch_mode.
	DispatchPolling = "polling"
	DispatchKafka   = "kafka_outbox"

	// The drivers of consumers: kafka.driver.
	DriverFranz  = "franz"
	DriverSarama = "sarama"
)

// Default returns the settings that hold when nobody says otherwise. It does not
// depend on the machine: what does is empty here and derived by Sources.Load.
func Default() Config {
	return Config{
		Env:           Development,
		Roles:         AllRoles(),
		StartDeadline: time.Minute,
		API: API{
			Listen:          "127.0.0.1:8080",
			MaxBodyBytes:    MiB,
			MaxStreams:      2048,
			ShutdownTimeout: 10 * time.Second,
			QueryTimeout:    10 * time.Second,
			Auth:            Auth{Mode: AuthToken},
		},
		GRPC: GRPC{Listen: "127.0.0.1:9090", MaxMessageBytes: 16 * MiB},
		GraphQL: GraphQL{
			Introspection: true, MaxBodyBytes: MiB, MaxTokens: 2500, MaxDepth: 10, MaxCost: 200_000, MaxRootFields: 20, MaxAliases: 50,
			MaxDirectives: 50, MaxListLength: 1000, MaxPageSize: 1000, MaxConcurrent: 4, Timeout: 10 * time.Second,
		},
		Admin: Admin{Listen: "127.0.0.1:9091"},
		Kafka: Kafka{
			Driver:            DriverFranz,
			ClientID:          "millrace",
			ReplicationFactor: -1,
			DialTimeout:       10 * time.Second,
			SessionTimeout:    15 * time.Second,
			HeartbeatInterval: time.Second,
			RebalanceTimeout:  time.Minute,
		},
		Postgres:    Postgres{ConnectTimeout: 5 * time.Second},
		Embedded:    Embedded{Broker: EmbeddedBroker{Listen: "127.0.0.1:9092"}},
		Topics:      defaultTopics(),
		Workflows:   Workflows{Transactions: 4, TransactionSize: 128, Queue: 4096, MaxSteps: 10_000, MaxVariablesBytes: MiB, Lifecycle: true, AuditLog: true},
		Jobs:        Jobs{DispatchMode: DispatchPolling, Lease: 30 * time.Second},
		Coordinator: defaultCoordinator(),
		Worker:      defaultWorker(),
		Kubernetes:  defaultKubernetes(),
		Results:     Results{Store: ResultsPostgres},
		Relay:       Relay{BatchSize: 500, PollCeiling: 100 * time.Millisecond},
		DeadLetters: DeadLetters{Retry: map[string]RetryRule{}},
		DataIndex:   DataIndex{Enabled: true, PlaceholderAfter: time.Hour},
		Triggers:    defaultTriggers(),
		Replay:      Replay{MaxRunning: 4, ConfirmAbove: 100_000},
		EventLog:    EventLog{Topics: []topics.Topic{topics.ExecutionEvents, topics.FlowLifecycle, topics.SagaEvents}},
		Retention: Retention{
			Outbox: 30 * topics.Day, Inbox: 120 * topics.Day, DeadLetters: 30 * topics.Day, DeadLetterArchive: 90 * topics.Day, Firings: 30 * topics.Day,
			Results: 90 * topics.Day, Events: 90 * topics.Day, Executions: 90 * topics.Day, Instances: 90 * topics.Day,
			Workflows: 30 * topics.Day,
		},
		Alerts: Alerts{Header: "Authorization", StallAfter: time.Hour, DeadLetters: 100, AttentionAfter: time.Minute},
		Log:    Log{Level: "info", Format: "text"},
	}
}

func defaultCoordinator() Coordinator {
	return Coordinator{
		Classes:       map[string]Class{},
		Limits:        map[string]Limit{},
		AgeingStep:    30 * time.Second,
		StartLimit:    time.Minute,
		MaxDeliveries: 5,
		PollInterval:  time.Second,
	}
}

func defaultWorker() Worker {
	return Worker{
		Slots:           16,
		ResourceClasses: []string{topics.DefaultResourceClass},
		Executors:       []string{"process", "function", "workflow"},
		Lease:           30 * time.Second,
		Heartbeat:       5 * time.Second,
		MaxOutputBytes:  8 * MiB,
		Sandbox:         Sandbox{Mode: "off", Network: true},
		MaxResultInline: 64 * KiB,
		MaxResult:       64 * MiB,
		ShutdownGrace:   20 * time.Second,
	}
}

func defaultTopics() map[topics.Topic]TopicTable {
	table := make(map[topics.Topic]TopicTable)
	for _, s := range topics.Table() {
		table[s.Topic] = TopicTable{Name: string(s.Topic), Partitions: s.Partitions, Retention: s.Retention}
	}
	return table
}

// TopicNaming returns the names of the topics at the broker.
func (c Config) TopicNaming() topics.Naming {
	naming := make(topics.Naming, len(c.Topics))
	for t, table := range c.Topics {
		naming[t] = table.Name
	}
	return naming
}

// TopicSpecs returns the topics, the declared ones among them, with the partitions
// and retention that are configured.
func (c Config) TopicSpecs() []topics.Spec {
	specs := specsOf(c.Topics)
	for i, s := range specs {
		if table, ok := c.Topics[s.Topic]; ok {
			specs[i].Partitions, specs[i].Retention = table.Partitions, table.Retention
		}
	}
	return specs
}

// specsOf returns topics.Table and behind it, by name, the further task topics that
// are declared.
func specsOf(declared map[topics.Topic]TopicTable) []topics.Spec {
	specs := topics.Table()
	for _, t := range slices.Sorted(maps.Keys(declared)) {
		if _, builtIn := topics.SpecOf(t); !builtIn {
			specs = append(specs, topics.TaskTopic(t))
		}
	}
	return specs
}

// TaskTopic returns the topic that the tasks of a resource class go to.
func (c Config) TaskTopic(class string) topics.Topic {
	return cmp.Or(c.Coordinator.Classes[class].Topic, topics.ExecutionTasks)
}

// WorkerTopics returns the task topics that this process's worker reads: those that
// are configured, or those that its resource classes are routed to.
func (c Config) WorkerTopics() []topics.Topic {
	if len(c.Worker.Topics) > 0 {
		return slices.Clone(c.Worker.Topics)
	}
	var read []topics.Topic
	for _, class := range c.Worker.ResourceClasses {
		if t := c.TaskTopic(class); !slices.Contains(read, t) {
			read = append(read, t)
		}
	}
	return read
}

// HasRole says whether this process plays the role.
func (c Config) HasRole(r Role) bool { return slices.Contains(c.Roles, r) }

// DefaultDataDir returns the data directory that holds when none is set:
// /var/lib/millrace for root, $XDG_DATA_HOME/millrace or
// ~/.local/share/millrace for everybody else. getenv is os.Getenv or a
// stand-in. The error says that there is neither root nor a home directory.
func DefaultDataDir(uid int, getenv func(string) string) (string, error) {
	if uid == 0 {
		return "/var/lib/millrace", nil
	}
	// The specification of XDG says that a relative path is to be ignored.
	if xdg := getenv("XDG_DATA_HOME"); filepath.IsAbs(xdg) {
		return filepath.Join(xdg, "millrace"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "share", "millrace"), nil
	}
	return "", fmt.Errorf("find the data directory: neither HOME nor XDG_DATA_HOME is set: name one with --data-dir or MILLRACE_DATA_DIR")
}

// newWorkerID returns a name that no other worker has: a restart makes a new one,
// so that a worker never takes itself for its predecessor.
func newWorkerID() string {
	host, _ := os.Hostname()
	var random [4]byte
	_, _ = rand.Read(random[:]) // crypto/rand never fails: it ends the program instead
	return fmt.Sprintf("%s-%d-%s", cmp.Or(host, "worker"), os.Getpid(), hex.EncodeToString(random[:]))
}
