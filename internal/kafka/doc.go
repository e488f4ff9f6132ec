// Package kafka is the transport: a Watermill Publisher and Subscriber over
// franz-go, the group-less Tail behind live updates, and the topic Admin. It is
// the only package, next to the embedded broker, that knows a Kafka client.
//
// # Ordering
//
// The key of a record decides its partition, and a partition is handed out in
// order: one worker per assigned partition, one Delivery in flight per worker.
// A nacked Delivery is handed out again, with the same records, before anything
// that lies behind it. On the way in, records of one key are published in the
// order of the call, and when one of them is not published, no later one of that
// key is either (ErrHeldBack).
//
// # Delivery
//
// At least once. A publish whose outcome is unknown is reported as an error. An
// offset is committed only after the Delivery that ends there was acked, so what
// was in flight when a process died comes again.
//
// A Delivery that fails stalls its partition and nothing else: the partition is
// paused, backs off 1, 2, 4 ... 60 seconds for ever and shows in Status, while
// heartbeats go on and the neighbours move. A partition whose offset no longer
// lies in the log, or whose topic was replaced, is stopped: it never jumps, and
// waits for Seek.
//
// # Rebalance, crash, shutdown
//
// A revoked partition is drained: no new Delivery is handed out, the one in
// flight may finish within DrainTimeout, then its context ends; what was acked
// is committed, and only then does the rebalance go on. Close does the same for
// all partitions before it leaves the group. A lost partition has its context
// cancelled at once and commits nothing: a commit carries the member and the
// generation under which its offsets were gathered, and is dropped if those are
// no longer current.
//
// # Goroutines of a Subscriber
//
// One poll loop that never blocks on a handler, one commit loop, and one worker
// per partition. Callbacks of the group (assign, revoke, lost) run on the
// client's own goroutines. Locks are taken in the order Subscriber.mu, then
// worker.mu; neither is held across a call to a hook, a handler or the broker.
package kafka
