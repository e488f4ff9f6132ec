package configs

import (
	"time"

	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/topics"
)

// Config is every setting of Millrace. Make one with Default or Sources.Load.
//
// The tags: key is the name within the parent; doc the sentence that the
// reference shows; oneof the accepted values; flag the name of the command-line
// flag of `up` and `serve`; unset says what an empty value means; file marks a
// file that must exist when it is named.
type Config struct {
	Env                 string `key:"env" oneof:"development,production" doc:"What this installation is for. Production refuses the embedded broker and the embedded PostgreSQL."`
	DataDir             string `key:"data_dir" flag:"data-dir" unset:"/var/lib/millrace for root, $XDG_DATA_HOME/millrace or ~/.local/share/millrace for others" doc:"The directory for everything that Millrace keeps on disk."`
	Roles               []Role `key:"roles" flag:"roles" oneof:"api,triggers,workflows,coordinator,worker,projections,relay,maintenance" doc:"What this process does."`
	InsecureAllowRemote bool   `key:"insecure_allow_remote" flag:"insecure-allow-remote" doc:"Accept addresses other than loopback although TLS or authentication is off. Only for networks that you trust."`

	StartDeadline time.Duration `key:"start_deadline" flag:"start-deadline" doc:"How long to wait for Kafka and PostgreSQL at start before giving up."`

	API         API                         `key:"api" doc:"The REST API."`
	GRPC        GRPC                        `key:"grpc" doc:"The gRPC API. Its callers are authenticated as those of the REST API are, and its TLS is the same."`
	GraphQL     GraphQL                     `key:"graphql" doc:"Queries over the read models, at /graphql of the API. What breaks a limit is refused with an error that names it."`
	Admin       Admin                       `key:"admin" doc:"Metrics, health and profiles, for operators."`
	Kafka       Kafka                       `key:"kafka" doc:"The connection to Apache Kafka."`
	Postgres    Postgres                    `key:"postgres" doc:"The connection to PostgreSQL."`
	Embedded    Embedded                    `key:"embedded" doc:"The servers that run inside or under this process."`
	Topics      map[topics.Topic]TopicTable `key:"topics" doc:"The topics, by logical name. Further task topics are declared by naming them, as topics.execution_tasks_gpu: what follows execution_tasks_ is lower-case letters, digits and '_'."`
	Workflows   Workflows                   `key:"workflows" doc:"The running of workflow instances."`
	Jobs        Jobs                        `key:"jobs" doc:"The jobs of service tasks, which workers do."`
	Triggers    Triggers                    `key:"triggers" doc:"What users bind to topics, webhooks and schedules. The role triggers runs them; webhooks are served by the role api."`
	Coordinator Coordinator                 `key:"coordinator" doc:"What decides when an execution may run."`
	Worker      Worker                      `key:"worker" doc:"What runs executions."`
	Kubernetes  Kubernetes                  `key:"kubernetes" doc:"The cluster in which the executor kubernetes runs programs. It is used by workers that have kubernetes among worker.executors."`
	Results     Results                     `key:"results" doc:"Where results are kept that are too long for events."`
	Relay       Relay                       `key:"relay" doc:"What publishes the outbox to Kafka."`
	DeadLetters DeadLetters                 `key:"dead_letters" doc:"What is done with records that consumers gave up on."`
	DataIndex   DataIndex                   `key:"data_index" doc:"The index of workflow instances and their tasks. The role projections builds it."`
	Replay      Replay                      `key:"replay" doc:"How much is replayed at once. The role maintenance does."`
	EventLog    EventLog                    `key:"event_log" doc:"The event log: the lasting copy of topics in PostgreSQL, which histories are read from, projections rebuilt and replays fed."`
	Retention   Retention                   `key:"retention" doc:"How long PostgreSQL keeps things."`
	Alerts      Alerts                      `key:"alerts" doc:"What tells somebody about what does not mend itself. The role maintenance does."`
	Log         Log                         `key:"log" doc:"The log, written to stderr."`
}

// API configures the REST API.
type API struct {
	Listen          string        `key:"listen" flag:"api-listen" doc:"The address of the REST API and the console. Port 0 takes any free port."`
	MaxBodyBytes    Size          `key:"max_body_bytes" doc:"The largest request body that is read; a larger one is refused with 413."`
	MaxStreams      int           `key:"max_streams" doc:"How many live streams of events may be open at once; one more is refused with 503. Each takes about 32 KiB."`
	ShutdownTimeout time.Duration `key:"shutdown_timeout" doc:"How long requests in flight may take to end after a stop was asked for."`
	QueryTimeout    time.Duration `key:"query_timeout" doc:"How long one query of the read models may take, lists and statistics of REST and GraphQL; a longer one is refused with 504."`
	Auth            Auth          `key:"auth" doc:"Authentication of callers."`
	TLS             ServerTLS     `key:"tls" doc:"TLS of the REST API."`
}

// GRPC configures the gRPC API.
type GRPC struct {
	Listen          string `key:"listen" flag:"grpc-listen" unset:"no gRPC" doc:"The address of the gRPC API. Port 0 takes any free port."`
	MaxMessageBytes Size   `key:"max_message_bytes" doc:"The largest message in either direction; a larger one is refused with RESOURCE_EXHAUSTED."`
}

// Auth configures the authentication of API callers.
type Auth struct {
	Mode      string        `key:"mode" flag:"auth" oneof:"token,off" doc:"How callers prove who they are: by a bearer token, or not at all, which is accepted on loopback addresses only."`
	Token     secret.Secret `key:"token" unset:"read from api.auth.token_file" doc:"The bearer token."`
	TokenFile string        `key:"token_file" unset:"token in the data directory" doc:"The file that holds the bearer token. It is made, with a random token and mode 0600, when it does not exist."`
}

// ServerTLS is the certificate of a listener; both fields or none are set.
type ServerTLS struct {
	CertFile string `key:"cert_file" file:"read" unset:"no TLS" doc:"The certificate chain, PEM."`
	KeyFile  string `key:"key_file" file:"read" unset:"no TLS" doc:"The private key, PEM."`
}

// Enabled says whether the listener speaks TLS.
func (t ServerTLS) Enabled() bool { return t.CertFile != "" && t.KeyFile != "" }

// GraphQL configures queries over the read models.
type GraphQL struct {
	Introspection bool          `key:"introspection" doc:"Let those who may query look at the schema too. Who may query is a matter of api.auth."`
	MaxBodyBytes  Size          `key:"max_body_bytes" doc:"The largest request body."`
	MaxTokens     int           `key:"max_tokens" doc:"The most words and signs of a document."`
	MaxDepth      int           `key:"max_depth" doc:"How deep fields may lie within each other, and objects in arguments and variables."`
	MaxCost       int           `key:"max_cost" doc:"The most fields that an answer may have, by estimate: the sizes of lists within each other multiply."`
	MaxRootFields int           `key:"max_root_fields" doc:"The most fields of the query itself."`
	MaxAliases    int           `key:"max_aliases" doc:"The most fields that are given another name."`
	MaxDirectives int           `key:"max_directives" doc:"The most directives of a document."`
	MaxListLength int           `key:"max_list_length" doc:"The longest list in arguments and variables, such as that of an in."`
	MaxPageSize   int           `key:"max_page_size" doc:"The most rows that a list may be asked for at once."`
	MaxConcurrent int           `key:"max_concurrent" doc:"How many statements all queries of this process run at once; others wait. It keeps connections free for the rest."`
	Timeout       time.Duration `key:"timeout" doc:"How long a query may take."`
}

// Workflows configures the running of workflow instances.
type Workflows struct {
	Transactions      int  `key:"transactions" doc:"How many transactions of the engine may be under way at once in this process. Requests that come while one is under way share the next, which begins beside it when it takes long."`
	TransactionSize   int  `key:"transaction_size" doc:"How many requests may share a transaction."`
	Queue             int  `key:"queue" doc:"How many requests may wait. What would be more is refused with 503: try again."`
	MaxSteps          int  `key:"max_steps" doc:"How many steps an instance may begin in all, so that a loop ends."`
	MaxVariablesBytes Size `key:"max_variables_bytes" doc:"How long the variables of an instance may be, as JSON. What would make them longer is refused, or fails its step."`
	Lifecycle         bool `key:"lifecycle" doc:"Publish lifecycle events (CloudEvents, topics.flow-lifecycle-out), which the data index is built from. Without Kafka they are off."`
	AuditLog          bool `key:"audit_log" doc:"Keep and show the audit log of instances. Without it the journal keeps what the history of instances needs, and what sagas are told by: less is written for each step."`
}

// Jobs configures the jobs of service tasks.
type Jobs struct {
	DispatchMode string        `key:"dispatch_mode" flag:"dispatch-mode" oneof:"polling,kafka_outbox" doc:"How jobs reach workers: they ask for them, which needs PostgreSQL alone, or read them from topics workflow.jobs.<jobType>. All processes of an installation must agree; a restart changes it."`
	Lease        time.Duration `key:"lease" doc:"For how long a job is held when its worker does not say: from the claim, or, over Kafka, from the publication of its record."`
}

// Admin configures the listener for operators.
type Admin struct {
	Listen string `key:"listen" flag:"admin-listen" doc:"The address of /metrics and /debug/pprof. It has neither TLS nor authentication."`
}

// Kafka configures every connection to the broker.
type Kafka struct {
	Driver            string        `key:"driver" oneof:"franz,sarama" doc:"The client library under the consumers of this process. sarama is the stock watermill-kafka driver, for consumers of single records (On and OnTx): roles and consumers that take batches do not start with it."`
	Brokers           []string      `key:"brokers" flag:"kafka-brokers" unset:"the embedded broker, or that of a running millrace up with the same data directory" doc:"The addresses to start from, host:port."`
	ClientID          string        `key:"client_id" doc:"How this installation calls itself at the broker."`
	ReplicationFactor int16         `key:"replication_factor" doc:"The number of replicas of topics that Millrace creates; -1 leaves it to the broker."`
	DialTimeout       time.Duration `key:"dial_timeout" doc:"How long one attempt to connect may take."`
	SessionTimeout    time.Duration `key:"session_timeout" doc:"After how long without a sign of life the broker gives a consumer's partitions to another."`
	HeartbeatInterval time.Duration `key:"heartbeat_interval" doc:"How often a consumer gives a sign of life, and so how soon it learns of a rebalance; at most a third of the session timeout."`
	RebalanceTimeout  time.Duration `key:"rebalance_timeout" doc:"How long a consumer may take to hand over its partitions."`
	TLS               ClientTLS     `key:"tls" doc:"TLS of the connections to Kafka."`
	SASL              SASL          `key:"sasl" doc:"Authentication at the broker."`
}

// ClientTLS configures TLS of a connection that Millrace opens.
type ClientTLS struct {
	Enabled    bool   `key:"enabled" doc:"Speak TLS."`
	CAFile     string `key:"ca_file" file:"read" unset:"the system's authorities" doc:"The authorities to trust, PEM."`
	CertFile   string `key:"cert_file" file:"read" unset:"no client certificate" doc:"The client certificate, PEM."`
	KeyFile    string `key:"key_file" file:"read" unset:"no client certificate" doc:"The key of the client certificate, PEM."`
	ServerName string `key:"server_name" unset:"the host that is dialled" doc:"The name that the server's certificate must carry."`
}

// SASL configures authentication at the broker.
type SASL struct {
	Mechanism string        `key:"mechanism" oneof:",PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER" unset:"no authentication" doc:"The SASL mechanism."`
	Username  string        `key:"username" unset:"none" doc:"The user, for PLAIN and SCRAM."`
	Password  secret.Secret `key:"password" doc:"The password, for PLAIN and SCRAM."`
	Token     secret.Secret `key:"token" doc:"The token, for OAUTHBEARER."`
	TokenFile string        `key:"token_file" file:"read" unset:"none" doc:"The file that holds the token, for OAUTHBEARER. It is read again for every connection, so that a rotated token needs no restart."`
}

// Postgres configures the connection to the database.
type Postgres struct {
	DSN            secret.Secret `key:"dsn" flag:"postgres-dsn" unset:"DATABASE_URL, else the PG* variables, else the embedded PostgreSQL, or that of a running millrace up with the same data directory" doc:"The data source name, as a URL or as key=value pairs."`
	MaxConns       int32         `key:"max_conns" doc:"The most connections in this process's pool; 0 is 4 per core, at least 10."`
	MinConns       int32         `key:"min_conns" doc:"How many connections the pool keeps open at least."`
	ConnectTimeout time.Duration `key:"connect_timeout" doc:"How long one attempt to connect may take."`
	StorageLimit   Size          `key:"storage_limit" doc:"The size to which the database may grow, for the metric that tells when it is full; 0 is not known, except on the disk of the embedded PostgreSQL."`
}

// Embedded configures the servers that Millrace brings along.
type Embedded struct {
	Broker   EmbeddedBroker   `key:"broker" doc:"The in-process broker that speaks the Kafka protocol."`
	Postgres EmbeddedPostgres `key:"postgres" doc:"The PostgreSQL that runs as a child process."`
}

// EmbeddedBroker configures the in-process broker.
type EmbeddedBroker struct {
	Enabled bool   `key:"enabled" doc:"Run it. millrace up does, unless kafka.brokers is set."`
	Listen  string `key:"listen" flag:"kafka-listen" doc:"The address at which it speaks the Kafka protocol."`
}

// EmbeddedPostgres configures the child PostgreSQL.
type EmbeddedPostgres struct {
	Enabled bool   `key:"enabled" doc:"Run it. millrace up does, unless postgres.dsn is set."`
	BinDir  string `key:"bin_dir" flag:"postgres-bin" unset:"search the machine, else fetch them" doc:"The directory with the server's programs (postgres, initdb)."`
}

// TopicTable says how one topic is named and made.
type TopicTable struct {
	Name       string        `key:"name" doc:"The name of the topic at the broker."`
	Partitions int32         `key:"partitions" doc:"The number of partitions that the topic is created with."`
	Retention  time.Duration `key:"retention" doc:"How long the broker keeps a record at least."`
}

// Coordinator configures admission.
type Coordinator struct {
	Classes       map[string]Class   `key:"classes" doc:"The resource classes, by name: coordinator.classes.gpu.topic. A class that is not named has the defaults."`
	Limits        map[string]Limit   `key:"limits" doc:"The limits, by name: how fast and how many at once executions with one key are admitted. docs/limits.md says how to write them."`
	Weights       map[string]float64 `key:"weights" unset:"1 for everybody" doc:"The shares of users among those who wait, by tenant/user: one with weight 2 gets twice what one with weight 1 gets. From 0.01 to 1000."`
	QueueDepth    QueueDepth         `key:"queue_depth" doc:"How many executions may wait at once. One more is rejected with the reason queue_full."`
	AgeingStep    time.Duration      `key:"ageing_step" doc:"How long work is passed over until it counts as one step of priority more, so that nothing waits for ever."`
	StartLimit    time.Duration      `key:"start_limit" doc:"How long a scheduled execution may wait for a worker before it is scheduled again, when its request does not say."`
	MaxDeliveries int                `key:"max_deliveries" doc:"How often an execution may lose its worker before it is quarantined."`
	PollInterval  time.Duration      `key:"poll_interval" doc:"How often the queue is looked at when nothing wakes the coordinator."`
}

// Class configures one resource class.
type Class struct {
	Topic topics.Topic `key:"topic" unset:"execution_tasks" doc:"The task topic that executions of the class go to. It is execution_tasks, or one that is declared under topics."`

	Slots  int   `key:"slots" doc:"The most slots of the class that are in use at once; 0 is as many as its workers have. What needs more is rejected, as with the other caps."`
	CPU    Cores `key:"cpu" doc:"The most processor time that is in use at once, in cores; 0 is what its workers have."`
	Memory Size  `key:"memory" doc:"The most memory that is in use at once; 0 is what its workers have."`
	GPUs   int   `key:"gpus" doc:"The most graphics processors that are in use at once; 0 is what its workers have."`
}

// Worker configures the running of executions.
type Worker struct {
	ID              string         `key:"id" unset:"host name, process id and a random part" doc:"The name of this worker, unique in the installation."`
	Slots           int            `key:"slots" flag:"worker-slots" doc:"The number of executions that run here at once."`
	CPU             Cores          `key:"cpu" doc:"The processor time that executions may ask for here in all, in cores; 0 does not count it."`
	Memory          Size           `key:"memory" doc:"The memory that executions may ask for here in all; 0 does not count it."`
	GPUs            int            `key:"gpus" doc:"The graphics processors that executions may use here; 0 is none."`
	ResourceClasses []string       `key:"resource_classes" flag:"worker-classes" doc:"The resource classes that this worker serves."`
	Topics          []topics.Topic `key:"topics" unset:"those that its resource classes are routed to" doc:"The task topics that this worker reads. They are named where a stage stands between: the coordinator routes a class to the topic that the stage reads, and workers read what it passes on."`
	Executors       []string       `key:"executors" oneof:"process,function,workflow,kubernetes" doc:"The executors that this worker offers."`
	Lease           time.Duration  `key:"lease" doc:"How long a claim lasts without a heartbeat. What loses its lease is stopped and run again."`
	Heartbeat       time.Duration  `key:"heartbeat" doc:"How often a claim is extended; less than a third of the lease."`
	MaxOutputBytes  Size           `key:"max_output_bytes" doc:"How much of stdout and of stderr is kept per attempt; the rest is counted and dropped."`
	MaxResultInline Size           `key:"max_result_inline" doc:"How long the result of an execution may be to travel in its events. A longer one is kept apart, and asked for by itself."`
	MaxResult       Size           `key:"max_result" doc:"How long the result of an execution may be at all; one that is longer makes it fail."`
	WorkRoot        string         `key:"work_root" unset:"work in the data directory" doc:"Where the working directories of processes are made."`
	Sandbox         Sandbox        `key:"sandbox" doc:"The walls around programs of the executor process, made by bubblewrap. Without them a program sees the files, the processes and the network of the worker's user; with them it sees files read-only, an empty /tmp, nothing of data_dir, no processes but its own, and can write to its working directory only."`
	ShutdownGrace   time.Duration  `key:"shutdown_grace" doc:"How long running executions may take to end after a stop was asked for, before they are stopped and handed back."`
}

// Sandbox configures bubblewrap.
type Sandbox struct {
	Mode     string   `key:"mode" oneof:"off,auto,required" doc:"Whether programs run inside bubblewrap: never, where it works, or nowhere without it. With auto the log and millrace doctor tell when it does not work; with required the worker does not start then."`
	Network  bool     `key:"network" doc:"Leave programs in the sandbox the network of the machine."`
	Writable []string `key:"writable" unset:"none" doc:"Directories that programs in the sandbox may write to beside their own, absolute. One that does not exist is left out."`
}

// Results configures where long results are kept.
type Results struct {
	Store string `key:"store" oneof:"postgres,directory" doc:"Where new ones go: the database, or files in a directory that all workers and API servers share. What was kept elsewhere before stays readable."`
	Dir   string `key:"dir" unset:"results in the data directory" doc:"The directory."`
}

// Relay configures the publishing of the outbox.
type Relay struct {
	BatchSize   int           `key:"batch_size" doc:"The most rows that are published at once."`
	PollCeiling time.Duration `key:"poll_ceiling" doc:"The longest wait between two looks at the outbox when nothing wakes the relay."`
}

// DeadLetters configures what is done with dead letters.
type DeadLetters struct {
	Topics []string             `key:"topics" unset:"none" doc:"Further dead-letter topics, by their names at the broker, whose letters are filed. Those of consumers in the same process need not be named."`
	Retry  map[string]RetryRule `key:"retry" unset:"nothing is redriven by itself" doc:"Which dead letters are redriven by themselves, by name: 'class=handler consumer=billing from=1m max=1h attempts=3 hold_above=100'. The first rule by name that matches a letter counts."`
}

// DataIndex configures the index of workflow instances and tasks.
type DataIndex struct {
	Enabled          bool          `key:"enabled" doc:"Whether lifecycle events of workflows are read, Millrace's own and those of other engines. The topics are topics.flow-lifecycle-out and topics.data-index-events-dlq."`
	PlaceholderAfter time.Duration `key:"placeholder_after" doc:"How long an instance may be known by its tasks alone before it is listed and counted as a placeholder: events of its workflow were lost, or never sent."`
}

// Replay configures replay sessions.
type Replay struct {
	MaxRunning   int `key:"max_running" doc:"How many replay sessions run at once; the others wait for their turn."`
	ConfirmAbove int `key:"confirm_above" doc:"About how many events a replay session may be without being confirmed."`
}

// EventLog configures what is recorded.
type EventLog struct {
	Topics []topics.Topic `key:"topics" doc:"The topics that are recorded, ours by their logical names and others by their names at the broker. Each is read by a consumer of its own, from the oldest record that it still has. execution_events is always among them."`
}

// Retention configures what is kept how long.
type Retention struct {
	Outbox            time.Duration `key:"outbox" doc:"How long published events stay in the outbox, where they can be published again. Events that are not published stay until they are, or are skipped."`
	Inbox             time.Duration `key:"inbox" doc:"For how long at least a consumer knows which events it has applied. It must cover retention.outbox together with the longest time for which a topic keeps its records: so long after it was applied an event can be met again, republished and then read late. What is met again after that is applied twice."`
	DeadLetters       time.Duration `key:"dead_letters" doc:"After how long dead letters are archived that were redriven, resolved or discarded and that nobody has touched since. Open ones stay."`
	Results           time.Duration `key:"results" doc:"How long results that are kept apart stay after the end of their executions."`
	Events            time.Duration `key:"events" doc:"How long events stay in the event log, by the time that they claim for themselves; up to a week more, since they go by weeks. Projections are rebuilt from them, and replays fed."`
	Executions        time.Duration `key:"executions" doc:"How long executions stay after their end, with their output, their results, their events and their views; 0 keeps them for ever. It must cover retention.outbox: what is republished must not tell of executions that are gone."`
	Instances         time.Duration `key:"instances" doc:"How long workflow instances, with their tasks, and sagas stay in the read models after their end; 0 keeps them for ever. Where it is less than retention.events, those that a rebuild brings back go again within the hour."`
	Workflows         time.Duration `key:"workflows" doc:"How long workflow instances stay where they run after their end, with their journal, jobs and user tasks, so that what failed can be retried; 0 keeps them for ever. The read models have them for retention.instances."`
	Firings           time.Duration `key:"firings" doc:"How long it is remembered when triggers by time have fired, and what that started."`
	DeadLetterArchive time.Duration `key:"dead_letter_archive" doc:"After how long archived dead letters are removed. The audit of what was done with them stays."`
}

// Alerts configures the webhook for alerts.
type Alerts struct {
	Webhook     secret.Secret `key:"webhook" unset:"no alerts are sent" doc:"The URL that alerts are posted to, as JSON. It is treated as a secret, since such URLs often are."`
	Header      string        `key:"header" doc:"The header of a post that carries alerts.secret."`
	Secret      secret.Secret `key:"secret" unset:"read from alerts.secret_file" doc:"What the receiver recognises the sender by: the whole value of the header, such as Bearer and a token."`
	SecretFile  string        `key:"secret_file" file:"read" unset:"none" doc:"The file that holds the secret. It is read again for every post, so that a rotated one needs no restart."`
	StallAfter  time.Duration `key:"stall_after" doc:"How long a partition may be stalled before it is an alert."`
	DeadLetters int           `key:"dead_letters" doc:"How many open dead letters are an alert; 0 turns that one off."`
	// AttentionAfter is about instances of workflows and sagas.
	AttentionAfter time.Duration `key:"attention_after" doc:"How long a saga or workflow may be in NEEDS_ATTENTION before it is an alert."`
}

// Log configures the log.
type Log struct {
	Level  string `key:"level" flag:"log-level" oneof:"debug,info,warn,error" doc:"The least severe level that is written."`
	Format string `key:"format" flag:"log-format" oneof:"text,json" doc:"One line of text or one JSON object per entry."`
}
