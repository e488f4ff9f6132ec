// Package kafka runs the jobs of an engine that dispatches them over Kafka
// (WE_DISPATCH_MODE=kafka_outbox). Handlers, configuration and what they mean are those of
// the package worker; only the way by which jobs come differs:
//
//	runner := kafka.NewRunner(engine, registry, kafka.Config{Brokers: []string{"localhost:9092"}})
//	err := runner.Run(ctx)
//
// For each job type the Runner joins the group workflow.workers.<jobType> and reads the
// topic workflow.jobs.<jobType>; results go to the engine by the client, as ever.
//
// # Order and repetition
//
// A record is a push, not a lease: the Runner takes the job with a heartbeat before it
// calls the handler. When the engine answers that somebody else has the job, or that it has
// ended, the record was a repetition and is passed over. Engines that know no heartbeat
// give jobs to whoever reads the record; then repetitions within DedupWindow are told by
// the record's dedup id, and beyond that handlers have to bear them.
//
// The jobs of a partition begin in its order, and up to PerPartition of them run at once. A
// record is committed when its job, and all before it in the partition, were reported or
// are not this worker's; so what a worker was doing when it died is read again, by itself
// or by others. They cannot take the jobs while the dead worker's leases last; after that
// the engine dispatches them anew.
package kafka
