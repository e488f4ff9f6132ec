// Package workertest is an engine for tests of workers: it holds jobs in memory and
// behaves like a real one towards those who work on them. There are leases that run out,
// heartbeats, fencing tokens, retries, long polls, completions that are taken once.
//
//	engine := workertest.NewEngine()
//	job := engine.Enqueue("charge", map[string]any{"amount": 12})
//	go worker.NewRunner(engine, registry, worker.Config{}).Run(ctx)
//	done := engine.Await(t, job)
//	require.Equal(t, workertest.Completed, done.Status)
//
// An Engine is a client.JobClient. NewServer puts it behind the REST and gRPC interfaces of
// a real engine, on loopback ports, for workers in whatever language.
//
// What a real engine would decide by a definition is decided by the job's options here:
// how many retries there are. A retry is available at once. Time is that of the process,
// so tests may run in a testing/synctest bubble.
package workertest
