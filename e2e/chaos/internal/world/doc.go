// Package world is the installation that a chaos run torments: Apache Kafka and
// PostgreSQL as child processes, proxies in front of both, and processes of
// Millrace in several roles, each of which can be hurt and mended.
//
// # Links
//
// Every process reaches Kafka and PostgreSQL by one of two links, A and B, each
// with its own proxies: a fault of link A meets half of the processes while the
// others go on and take over. Kafka advertises a listener of its own per link, so a
// client stays on the link that it came by. The harness itself goes beside them.
//
// # Supervision
//
// A process that ends although nobody made it end is started again, as it would be
// anywhere, and reported: as a finding if it had become ready, since Millrace is
// to wait for its servers.
package world
