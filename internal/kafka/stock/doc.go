// Package stock is the other driver of the transport: the stock watermill-kafka
// subscriber and publisher over sarama, with the settings under which nothing is
// lost or reordered, and with a fence around the session. It is for comparison,
// and for whoever wants sarama under the consumers of a process
// (kafka.driver: sarama). The driver of package kafka is the default.
//
// # What the stock driver does, and what is put around it
//
// Stock code joins the group, reconnects, takes one record at a time, makes a
// message of it, waits for its ack and marks it. It offers one opening, the tracer
// that may wrap its group handler, and through that the fence stands between it
// and the session:
//
//   - The claim of sarama only tells for how long a partition is ours: it is paused.
//     The records come from a partition consumer of the fence's own, which starts at
//     the exact offset, so that OnTx consumers go by PostgreSQL, and which is paused
//     when enough is fetched ahead, so that a partition that stands never holds up
//     the fetches of its neighbours.
//   - Stock code never sees a nack, which it would answer with a loop that outlives
//     the session. The fence stalls the partition itself, hands out the same record
//     again, and stops when the partition is revoked.
//   - Stock code never decodes: its unmarshaler hands on what the fence has read, so
//     that no record can end the session.
//   - The session that stock code marks offsets in is the fence's: it ends with the
//     ownership of the partition, not with the session alone, and marks nothing
//     afterwards.
//
// # Ordering and delivery
//
// As in package kafka: at least once, one Delivery in flight per partition, a nacked
// one is handed out again before anything behind it. A Delivery is one record:
// batches are refused (ErrBatches). An offset that is not in the log stops the
// partition.
//
// # Rebalance, crash, shutdown
//
// The group protocol is that of package kafka (cooperative-sticky), so that a group
// can have members of both drivers while one is replaced by the other. A revoked
// partition may finish what is in flight within DrainTimeout, and then its offset is
// committed; a lost one has its context cancelled at once and commits nothing. Close
// drains all partitions before stock code leaves the group.
//
// # Goroutines
//
// Stock code runs one goroutine per subscription and one per partition, sarama
// several per connection. The fence adds, per partition, a worker, a watch over the
// ownership, and two that take over what sarama has fetched.
package stock
