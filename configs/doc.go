// Package configs is the typed configuration of Millrace: its settings, their
// defaults, where values come from and what they must satisfy.
//
// # Where values come from
//
// Each source overrides the ones before it:
//
//  1. the defaults (Default),
//  2. the YAML file named by --config or MILLRACE_CONFIG, in which ${VAR} and
//     ${VAR:default} stand for environment variables,
//  3. the environment: MILLRACE_KAFKA_BROKERS is kafka.brokers, and for a secret
//     MILLRACE_POSTGRES_DSN_FILE names a file that holds the value,
//  4. command-line flags.
//
// What is still unset then is derived (Sources.Load tells how): the data source
// name from DATABASE_URL or the PG* variables, the addresses of a running
// `millrace up` from its data directory, paths from the data directory.
//
// # Faults
//
// A key that is not known is an error, with a suggestion. All faults are found in
// one go and reported together (InvalidError), each with the file and line, the
// variable or the flag that it came from, and its path.
//
// # Secrets
//
// Passwords, tokens and data source names are secret.Secret: printing, logging
// or encoding a Config never shows them.
//
// The struct tags in config.go are the single source of the reference
// (docs/configuration.md) and of the commented example (configs/millrace.yaml);
// tests keep both equal to them.
package configs
