package configs

import (
	"slices"
	"strings"
)

// BrokerlessRoles returns the roles that do without Kafka: they run workflows, and jobs
// that are polled for, on PostgreSQL alone.
func BrokerlessRoles() []Role { return []Role{RoleAPI, RoleWorkflows, RoleMaintenance} }

// Brokerless says that there is no Kafka.
func (c Config) Brokerless() bool { return len(c.Kafka.Brokers) == 0 && !c.Embedded.Broker.Enabled }

// deriveRoles leaves out what needs Kafka where none is named and the database is, in
// the way of the engine that needs no more.
func (c *Config) deriveRoles(origins Origins) {
	if _, said := origins["roles"]; !said && c.Brokerless() && origins["postgres.dsn"] == "WE_POSTGRES_DSN" {
		c.Roles, origins["roles"] = BrokerlessRoles(), "WE_POSTGRES_DSN without kafka.brokers"
	}
}

// checkBrokers reports what needs Kafka where there is none.
func (s Sources) checkBrokers(c Config, origins Origins, found *faults) {
	if !s.BrokersOptional || !c.Brokerless() {
		return
	}
	without := listOfRoles(BrokerlessRoles())
	if _, said := origins["roles"]; !said {
		found.add(origins["kafka.brokers"], "kafka.brokers",
			"is required: set --kafka-brokers, MILLRACE_KAFKA_BROKERS, kafka.brokers in the file given by --config; or run workflows on PostgreSQL alone with --roles %s; or start everything embedded with `millrace up`", without)
		return
	}
	for _, role := range c.Roles {
		if !slices.Contains(BrokerlessRoles(), role) {
			found.add(origins["roles"], "roles", "the role %s needs Kafka: set kafka.brokers, or play only roles that do without it: %s", role, without)
		}
	}
	if c.Jobs.DispatchMode == DispatchKafka {
		found.add(origins["jobs.dispatch_mode"], "jobs.dispatch_mode", "%s needs Kafka: set kafka.brokers", DispatchKafka)
	}
}

func listOfRoles(roles []Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, ",")
}
