// Package embedded brings the two servers that Millrace needs when none is at
// hand: a broker that speaks the Kafka protocol, in this process, and PostgreSQL
// as a child process. It is for trying Millrace, for development and for tests;
// production points Millrace at real servers.
//
// # Directories
//
// Each server owns one data directory and holds a lock on it for as long as it
// runs: a second instance is refused with the id of the process that holds it.
// Nothing in a data directory is ever deleted because it looks wrong.
//
// # Crash behaviour
//
// Broker: what it acknowledged (records, topics that were created explicitly,
// committed offsets) outlives a SIGKILL of this process. It outlives a power loss
// only with BrokerConfig.Sync. Topics created by a metadata request would be lost
// with their records, so that is switched off.
//
// PostgreSQL: fsync is on, so every commit outlives a power loss. When this
// process is killed the server shuts down by itself; the next start waits for
// it, or stops it.
//
// # Ordering and delivery
//
// The broker keeps the guarantees of Kafka with a single broker: order within a
// partition, idempotent producers, consumer groups, transactions. It handles all
// requests in one goroutine.
package embedded
