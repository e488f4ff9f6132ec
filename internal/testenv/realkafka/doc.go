// Package realkafka runs Apache Kafka itself, as child processes, for tests and
// measurements: no containers, only a Java runtime, and Maven to bring the
// programs once.
//
// # Crash behaviour
//
// A broker can be killed, stopped, paused and started again on the same port and
// data. It dies with this process, however that ends. Its data outlives SIGKILL
// of the broker, not a power loss: Kafka flushes in the background and relies on
// replication.
package realkafka
