// Package kafkasource is the source of Kafka triggers: members of consumer groups that
// hand what they read to internal/ingest. All that triggers know of Kafka is here.
//
// # Order and delivery
//
// A partition is handed over in the order of its log, in batches that share a
// transaction, one batch at a time. The group's offset in Kafka is the truth: it moves
// only behind messages that Create has made durable (or found made before, or filed as
// dead letters), and never jumps. So delivery is at least once, and Create knows a message
// again by its place: cluster, id of the topic, partition and offset.
//
// A message that cannot be taken now stalls its partition and no other: 1, 2, 4 ... 60 s,
// for ever, while the member's heartbeats go on. What lies before it in the batch is done
// and stays so. A partition whose next message is no longer in the log stands until
// somebody has set the group's offset.
//
// # Crash, takeover, rebalance
//
// Every member is a static one of its group, named after the trigger and its number. The
// process that takes a lease over joins under the same name and has the partitions at
// once; the one before is fenced by the brokers, so that a stall that outlives its process
// leaves no zombie. A process that ends in order leaves the group.
//
// A topic that was deleted and created again begins at its first message, since every one
// in it is new: the offset that is committed names the topic's id. A group whose offsets
// the brokers have expired goes on where the trigger was seen last (Config.Positions).
package kafkasource
