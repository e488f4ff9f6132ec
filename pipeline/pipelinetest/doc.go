// Package pipelinetest runs one consumer in a test: in memory, synchronously,
// with everything that the real runtime does to its events.
//
//	h := pipelinetest.New(t, NewGreeter())
//	h.Feed(topics.ExecutionCompleted{ExecutionID: "e-1"})
//	assert.Equal(t, []topics.Event{...}, h.Published())
//
// Feed returns when the events are settled: handled, or filed as dead letters.
// Retries do not wait. Events that were fed get ascending offsets in one
// partition; a consumer made with OnBatchTx gets those of one call as batches.
//
// Handlers made with OnTx and OnBatchTx get a transaction that records their
// statements and answers none (see Statements); with WithTx they run against
// PostgreSQL, inside a transaction of the test's own. Published shows what came
// out of transactions that were committed.
package pipelinetest
