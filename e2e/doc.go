// Package e2e tests Millrace from outside: the real binary, as several processes,
// over HTTP, against brokers and databases that are killed and come back. It holds
// no code but tests; the chaos runs of many faults at once are in e2e/chaos.
//
// # What runs where
//
// The tests about starting, about `millrace up` and the smoke test run anywhere,
// on the embedded broker and a PostgreSQL of the test binary. Those about whole
// installations need a real Apache Kafka and are skipped unless
// MILLRACE_TEST_REAL=1; each starts a broker and a PostgreSQL with fsync of its
// own. With MILLRACE_TEST_REAL=only, as in make test-kafka, installations on the
// embedded broker are left out: make test has them.
//
// With -race the binary is built with the race detector too.
//
// # What is proved
//
// Every acknowledged execution ends in exactly one terminal state; its events are
// numbered without gaps and hold one terminal event; the read model says what the
// write model says; nothing is left in the outbox and nothing is a dead letter. Programs leave
// a trace of their own, by which no two attempts of one execution overlap.
//
// TestCrashPoints kills processes at every named point (internal/crash) and has
// internal/verify judge what is left. TestRequirement004_... are the validations
// that requirement 004 asks for. The data index is held against the CNCF Java SDK, which
// takes a JDK, and against faults; see package dataindex.
//
// TestWorkflows runs what uses workflows from outside, with the Go SDK (the module
// e2e/workflows), in both dispatch modes; TestWorkflowsKilled kills engine, relay and
// workers in turn meanwhile and counts what the workers did.
//
// TestPodsUnderFaults runs executions as pods while workers, the API server of the cluster,
// its watch, its store and its nodes fail, and TestPodCrashPoints kills the worker at each
// point between two things that it does about a pod: no program is started twice, each fact
// about a pod is told once, nothing is left in the cluster. Both have an API server that
// package kubetest serves, or, with MILLRACE_TEST_K8S=1, that of Kubernetes itself, and then
// 500 executions; -pod-executions sets another number.
//
// TestTriggerCrashPoints kills what reads a Kafka trigger at each point of the creation of
// executions, instances and dead letters: what comes again is neither lost nor doubled.
// TestThePartitionsOrder... has executions of one key run in the order of the messages that
// they are from, while a coordinator dies.
//
// TestRequirement001_... are the success criteria of requirement 001; those about where code
// may know of Kafka are in internal/archtest. TestRequirement001_NoMessageIsLost takes the
// database, the brokers, connections and processes away under a Kafka trigger, a webhook and a
// schedule; TestTriggersOverTheirFaults does what can happen to topics, groups and messages,
// over a rebalance; TestWebhookCrashPoints kills what answers webhooks. Each message has a
// number: it is to be in one execution, and those of a partition in their order, and the
// group's offset is never ahead of what is stored.
//
// # When a test fails
//
// It prints the end of the log of each process and, when nothing moved for a
// minute, what was open in the database and at the broker. Give -artifacts to keep
// the logs.
package e2e
