// Package worker runs the jobs of workflows: handlers are registered by job type, and a
// Runner leases jobs from the engine, calls the handlers and reports what they return.
//
//	engine, err := client.NewREST("http://localhost:8080")
//	registry := worker.NewRegistry()
//	registry.Register("process-order", func(ctx context.Context, job worker.JobContext) (worker.Result, error) {
//		return worker.Result{VariablesToSet: map[string]any{"processed": true}}, nil
//	})
//	runner, err := worker.NewRunner(engine, registry, worker.Config{WorkerID: "orders-1"})
//	err = runner.Run(ctx) // until ctx ends, and then until what has begun is done
//
// Handle registers a function of two types of your own instead, so that there is nothing
// to decode:
//
//	worker.Handle(registry, "charge", func(ctx context.Context, in Order) (Receipt, error) { ... })
//
// # How often a handler runs
//
// At least once for each job that succeeds. A worker that dies, or that the engine does
// not hear from for the length of a lease (30 s), loses its job to another one, which runs
// the handler again; so a handler has to bear being repeated. What counts is reported once:
// the engine accepts one result per job, from who holds the lease.
//
// While a handler runs, the Runner extends its lease. When the engine says that the lease
// is gone (somebody else has the job, or the instance was cancelled or timed out), the
// handler's context is cancelled with the cause ErrLeaseLost, and its result is dropped.
//
// # What a handler's error means
//
// Any error is a failed attempt, and the engine decides by the definition whether and when
// there is another one. NonRetryable says that it would not help. Fail gives the error a
// code that retry policies and error boundaries of the definition can name. RetryAfter says
// when to try again, in place of the definition's backoff. A panic is a
// failure that is not retried, with the code "panic".
//
// # Stopping
//
// When the context of Run ends, no more jobs are taken. Handlers go on for as long as
// DrainTimeout; then their contexts are cancelled with the cause ErrStopping. A handler
// that then returns an error has not failed: the job goes to another worker when the lease
// is over, without costing a retry.
package worker
