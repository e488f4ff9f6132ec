// Package testenv gives tests a broker, a PostgreSQL database and, where asked
// for, a real Apache Kafka (package realkafka), without containers.
//
// A package that uses it calls Run from its TestMain:
//
//	func TestMain(m *testing.M) { testenv.Run(m) }
//
// # Isolation
//
// Every test has a broker and a database of its own, so tests run in parallel and
// see nothing of each other. The databases lie on one PostgreSQL server per test
// binary, started when the first test asks for it.
//
// # Crash behaviour
//
// The shared server runs with fsync off: its data does not outlive a power loss,
// which no test is about. It does outlive SIGKILL of the server. Set
// MILLRACE_TEST_FSYNC=1 to run it as production does, for measurements; a server
// of OwnPostgres always does. All servers end with the test binary, however that
// ends; only a killed one leaves a directory behind.
package testenv
