package configs_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/secret"
	"github.com/millrace/millrace/topics"
)

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	assert.NoError(t, configs.Default().Validate())
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tls := configs.ServerTLS{CertFile: "c", KeyFile: "k"}
	for name, c := range map[string]struct {
		change func(*configs.Config)
		path   string // of the one fault; empty for none
	}{
		"auth off on loopback":              {func(c *configs.Config) { c.API.Auth.Mode = "off" }, ""},
		"auth off on localhost":             {func(c *configs.Config) { c.API.Auth.Mode, c.API.Listen = "off", "localhost:1" }, ""},
		"auth off on ::1":                   {func(c *configs.Config) { c.API.Auth.Mode, c.API.Listen = "off", "[::1]:1" }, ""},
		"auth off for everybody":            {func(c *configs.Config) { c.API.Auth.Mode, c.API.Listen = "off", "0.0.0.0:1" }, "api.auth.mode"},
		"auth off for everybody, forced":    {func(c *configs.Config) { c.API.Auth.Mode, c.API.Listen, c.InsecureAllowRemote = "off", ":1", true }, "api.auth.mode"},
		"auth off for everybody, with TLS":  {func(c *configs.Config) { c.API.Auth.Mode, c.API.Listen, c.API.TLS = "off", ":1", tls }, "api.auth.mode"},
		"remote without TLS":                {func(c *configs.Config) { c.API.Listen = "0.0.0.0:1" }, "api.listen"},
		"remote by name":                    {func(c *configs.Config) { c.API.Listen = "example.org:1" }, "api.listen"},
		"remote with TLS":                   {func(c *configs.Config) { c.API.Listen, c.API.TLS = ":1", tls }, ""},
		"remote without TLS, allowed":       {func(c *configs.Config) { c.API.Listen, c.InsecureAllowRemote = ":1", true }, ""},
		"remote admin":                      {func(c *configs.Config) { c.Admin.Listen = ":1" }, "admin.listen"},
		"remote broker":                     {func(c *configs.Config) { c.Embedded.Broker.Listen = ":1" }, "embedded.broker.listen"},
		"unknown auth":                      {func(c *configs.Config) { c.API.Auth.Mode = "none" }, "api.auth.mode"},
		"half a certificate":                {func(c *configs.Config) { c.API.TLS.CertFile = "c" }, "api.tls"},
		"no port":                           {func(c *configs.Config) { c.API.Listen = "127.0.0.1" }, "api.listen"},
		"absurd port":                       {func(c *configs.Config) { c.API.Listen = "127.0.0.1:70000" }, "api.listen"},
		"any port":                          {func(c *configs.Config) { c.API.Listen, c.Admin.Listen = "127.0.0.1:0", "127.0.0.1:0" }, ""},
		"same port":                         {func(c *configs.Config) { c.Admin.Listen = c.API.Listen }, "admin.listen"},
		"no depth":                          {func(c *configs.Config) { c.GraphQL.MaxDepth = 0 }, "graphql.max_depth"},
		"tiny queries":                      {func(c *configs.Config) { c.GraphQL.MaxBodyBytes = 10 }, "graphql.max_body_bytes"},
		"pages that are too long":           {func(c *configs.Config) { c.GraphQL.MaxPageSize = 1001 }, "graphql.max_page_size"},
		"queries that wait":                 {func(c *configs.Config) { c.GraphQL.MaxConcurrent = 0 }, "graphql.max_concurrent"},
		"queries without end":               {func(c *configs.Config) { c.GraphQL.Timeout = time.Hour }, "graphql.timeout"},
		"tiny body":                         {func(c *configs.Config) { c.API.MaxBodyBytes = 10 }, "api.max_body_bytes"},
		"heartbeat of a third":              {func(c *configs.Config) { c.Worker.Heartbeat = 10 * time.Second }, "worker.heartbeat"},
		"heartbeat below a third":           {func(c *configs.Config) { c.Worker.Heartbeat = 9 * time.Second }, ""},
		"a short lease of jobs":             {func(c *configs.Config) { c.Jobs.Lease = time.Millisecond }, "jobs.lease"},
		"no lease":                          {func(c *configs.Config) { c.Worker.Lease = 0 }, "worker.lease"},
		"negative duration":                 {func(c *configs.Config) { c.StartDeadline = -time.Second }, "start_deadline"},
		"embedded broker in production":     {func(c *configs.Config) { c.Env, c.Embedded.Broker.Enabled = "production", true }, "embedded.broker.enabled"},
		"embedded PostgreSQL in production": {func(c *configs.Config) { c.Env, c.Embedded.Postgres.Enabled = "production", true }, "embedded.postgres.enabled"},
		"no role":                           {func(c *configs.Config) { c.Roles = nil }, "roles"},
		"unknown role":                      {func(c *configs.Config) { c.Roles = []configs.Role{"wrker"} }, "roles"},
		"role twice":                        {func(c *configs.Config) { c.Roles = []configs.Role{"api", "api"} }, "roles"},
		"negative cpu":                      {func(c *configs.Config) { c.Worker.CPU = -1 }, "worker.cpu"},
		"negative memory":                   {func(c *configs.Config) { c.Worker.Memory = -1 }, "worker.memory"},
		"absurd gpus":                       {func(c *configs.Config) { c.Worker.GPUs = 1_000_000 }, "worker.gpus"},
		"long inline results":               {func(c *configs.Config) { c.Worker.MaxResultInline = configs.MiB }, "worker.max_result_inline"},
		"short results":                     {func(c *configs.Config) { c.Worker.MaxResult = configs.KiB }, "worker.max_result"},
		"results of hours":                  {func(c *configs.Config) { c.Retention.Results = time.Hour }, "retention.results"},
		"no slots":                          {func(c *configs.Config) { c.Worker.Slots = 0 }, "worker.slots"},
		"no resource class":                 {func(c *configs.Config) { c.Worker.ResourceClasses = nil }, "worker.resource_classes"},
		"odd resource class":                {func(c *configs.Config) { c.Worker.ResourceClasses = []string{"a b"} }, "worker.resource_classes"},
		"unknown executor":                  {func(c *configs.Config) { c.Worker.Executors = []string{"proces"} }, "worker.executors"},
		"negative cap":                      {func(c *configs.Config) { c.Coordinator.Classes["x"] = configs.Class{Slots: -1} }, "coordinator.classes.x.slots"},
		"negative cap of memory":            {func(c *configs.Config) { c.Coordinator.Classes["x"] = configs.Class{Memory: -1} }, "coordinator.classes.x.memory"},
		"negative cap of cpu":               {func(c *configs.Config) { c.Coordinator.Classes["x"] = configs.Class{CPU: -1} }, "coordinator.classes.x.cpu"},
		"absurd cap of gpus":                {func(c *configs.Config) { c.Coordinator.Classes["x"] = configs.Class{GPUs: 1_000_000} }, "coordinator.classes.x.gpus"},
		"weight of nothing":                 {func(c *configs.Config) { c.Coordinator.Weights = map[string]float64{"a/b": 0} }, "coordinator.weights"},
		"absurd weight":                     {func(c *configs.Config) { c.Coordinator.Weights = map[string]float64{"a/b": 1001} }, "coordinator.weights"},
		"weight that is no number":          {func(c *configs.Config) { c.Coordinator.Weights = map[string]float64{"a/b": math.NaN()} }, "coordinator.weights"},
		"weight of a user without tenant":   {func(c *configs.Config) { c.Coordinator.Weights = map[string]float64{"ada": 1} }, "coordinator.weights"},
		"weights at their bounds":           {func(c *configs.Config) { c.Coordinator.Weights = map[string]float64{"a/b": 0.01, "a/b/c": 1000} }, ""},
		"negative depth":                    {func(c *configs.Config) { c.Coordinator.QueueDepth.User = -1 }, "coordinator.queue_depth.user"},
		"limit of nothing":                  {func(c *configs.Config) { c.Coordinator.Limits["x"] = configs.Limit{Per: "user", Action: "queue"} }, "coordinator.limits.x"},
		"limit per group": {func(c *configs.Config) {
			c.Coordinator.Limits["x"] = configs.Limit{Per: "group", Action: "queue", Concurrency: 1}
		}, "coordinator.limits.x.per"},
		"few connections":           {func(c *configs.Config) { c.Postgres.MaxConns = 1 }, "postgres.max_conns"},
		"inbox shorter than outbox": {func(c *configs.Config) { c.Retention.Inbox = 29 * 24 * time.Hour }, "retention.inbox"},
		"outbox of hours":           {func(c *configs.Config) { c.Retention.Outbox = time.Hour }, "retention.outbox"},
		"negative storage limit":    {func(c *configs.Config) { c.Postgres.StorageLimit = -1 }, "postgres.storage_limit"},
		"odd dsn":                   {func(c *configs.Config) { c.Postgres.DSN = secret.New("mysql://canary@x") }, "postgres.dsn"},
		"broker without port":       {func(c *configs.Config) { c.Kafka.Brokers = []string{"kafka"} }, "kafka.brokers"},
		"broker without host":       {func(c *configs.Config) { c.Kafka.Brokers = []string{":9092"} }, "kafka.brokers"},
		"no replica":                {func(c *configs.Config) { c.Kafka.ReplicationFactor = 0 }, "kafka.replication_factor"},
		"unknown driver":            {func(c *configs.Config) { c.Kafka.Driver = "librd" }, "kafka.driver"},
		"sasl without password":     {func(c *configs.Config) { c.Kafka.SASL = configs.SASL{Mechanism: "PLAIN", Username: "u"} }, "kafka.sasl.password"},
		"credentials without sasl":  {func(c *configs.Config) { c.Kafka.SASL = configs.SASL{Username: "u"} }, "kafka.sasl.mechanism"},
		"oauth without token":       {func(c *configs.Config) { c.Kafka.SASL = configs.SASL{Mechanism: "OAUTHBEARER"} }, "kafka.sasl.token"},
		"oauth with two tokens": {func(c *configs.Config) {
			c.Kafka.SASL = configs.SASL{Mechanism: "OAUTHBEARER", Token: secret.New("t"), TokenFile: "f"}
		}, "kafka.sasl.token"},
		"TLS settings without TLS": {func(c *configs.Config) { c.Kafka.TLS.CAFile = "ca.pem" }, "kafka.tls.enabled"},
		"no partition":             {func(c *configs.Config) { change(c, func(t *configs.TopicTable) { t.Partitions = 0 }) }, "topics.execution_events.partitions"},
		"topic of another":         {func(c *configs.Config) { change(c, func(t *configs.TopicTable) { t.Name = "dead_letters" }) }, "topics"},
		"batch of nothing":         {func(c *configs.Config) { c.Relay.BatchSize = 0 }, "relay.batch_size"},
		"unknown level":            {func(c *configs.Config) { c.Log.Level = "loud" }, "log.level"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := configs.Default()
			c.change(&config)
			err := config.Validate()
			if c.path == "" {
				require.NoError(t, err)
				return
			}
			var invalid *configs.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Len(t, invalid.Faults, 1, err.Error())
			assert.Equal(t, c.path, invalid.Faults[0].Path)
			assert.NotContains(t, err.Error(), "canary")
		})
	}
}

func change(c *configs.Config, f func(*configs.TopicTable)) {
	table := c.Topics[topics.ExecutionEvents]
	f(&table)
	c.Topics[topics.ExecutionEvents] = table
}
