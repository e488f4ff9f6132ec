// Package crash names the points at which a crash matters: between two steps that
// are durable one by one, where a process that dies leaves the second one to
// whoever comes next. Tests kill the process at each of them.
//
// At costs nothing in an ordinary build: it is an empty function, which the
// compiler removes together with its argument, and nothing that could be armed is
// in the binary. With the build tag "crashpoints" it is: a process that is started
// with CRASHPOINT_FILE set looks at each point whether that file names it, and
// if so sends SIGKILL to itself. See docs/adr/0021-crash-points.md.
//
// # Arming
//
// The file holds the name of a point and which passing of it is meant, counted
// from 1 since the file was put there: "relay.published 3". It should be moved
// into place, so that nobody reads half of it. Of several processes that share the
// file one dies: the one that manages to rename it to its name with ".crashed"
// added. That file then holds the point and the id of the process.
//
// # Adding a point
//
// Call At with a new name, a literal, and describe it in Points; a test compares
// the two, and the crash tests of e2e fail until a workload passes it. A point that
// is passed all the time without anything happening is worth little: call At where
// there was something to do.
package crash

// Point is a named point.
type Point struct {
	// Name is the part of the system and what has just been done, or is being done.
	Name string
	// Meaning says what a crash there leaves behind, and who deals with it.
	Meaning string
}

// Points lists all points, in the order in which an execution passes them.
func Points() []Point {
	return []Point{
		{"submit.recording", "Execution and event are written and not committed: nothing has happened, and the client asks again."},
		{"submit.recorded", "They are committed and the client has no answer: asking again under its idempotency key leads to the same execution."},

		{"submit.guarded", "The keys of messages are claimed and what is made of them is about to be written and committed: nothing has happened, and the messages come again."},
		{"ingest.letters", "Messages of which nothing can be made are about to become dead letters: nothing has happened, and they come again."},
		{"ingest.created", "Executions and keys of messages are committed and their source does not know: the messages come again, and are known."},
		{"ingest.promised", "The keys of messages are claimed for instances of which none is started: the messages come again and start these."},
		{"ingest.started", "Instances are started and their keys do not say so: the messages come again and find them under the ids that were promised."},

		{"lease.taken", "A lease is taken and its taker does not know: it runs out and goes to somebody else, under a higher token."},
		{"lease.renewed", "Leases were renewed for a holder that is dead: they run out later than they might have."},

		{"relay.scanned", "Rows were read and none was sent: the next holder of the shard reads them."},
		{"relay.handed", "What was committed a moment ago was taken from memory and not sent: the next holder of the shard reads it."},
		{"relay.publishing", "A batch is about to be sent: the next holder sends it."},
		{"relay.published", "The broker has a batch and the rows are still pending: they are published again under the same ids, and consumers recognise them."},
		{"relay.marked", "The rows are marked and the relay has not let go of them: nothing is left to do."},

		{"consumer.taken", "A delivery has arrived and nothing was done with it: it comes again."},
		{"consumer.applied", "The effect is written with the position and not committed: neither has happened, and the delivery comes again."},
		{"consumer.committed", "Effect and position are committed and Kafka knows of nothing: the next owner starts from PostgreSQL's position."},
		{"consumer.letters_filed", "Dead letters are written and not committed: the records come again and are filed then."},
		{"consumer.letters_published", "Dead letters of an On consumer are in their topic and the records are not acked: they fail again, and their letters are the same ones."},
		{"transport.acked", "A delivery is acked and its offset not committed to Kafka: it comes again unless PostgreSQL has the position."},
		{"transport.committed", "Offsets were committed to Kafka and the member does not know: nothing is left to do."},

		{"admitter.admitting", "Admissions are written and not committed: capacity is as it was, and the next admitter decides anew."},
		{"admitter.admitted", "They are committed and nobody was woken: events and tasks are in the outbox, and the relay polls."},
		{"sweeper.sweeping", "Limits and leases that have passed are applied and not committed: the next sweep finds them due."},
		{"sweeper.swept", "They are committed and nobody was woken: who waits for capacity polls."},

		{"worker.offered", "What a record told of is on offer and the record is not acked: it comes again, and whoever reads it takes the execution or leaves it on offer."},
		{"worker.claiming", "A claim is written and not committed: the execution stays claimable."},
		{"worker.claimed", "The lease is committed and nothing runs: it runs out, and another attempt follows."},
		{"worker.running", "The program runs: it is killed with its worker, its lease runs out, and another attempt follows."},
		{"worker.output_appended", "Output is committed and the worker does not know: it belongs to an attempt that is lost."},
		{"worker.renewed", "Leases were renewed for a worker that is dead: they run out a lease later."},
		{"worker.ended", "The program has ended and nobody was told: its result is lost, and another attempt follows."},
		{"worker.finishing", "The result is written and not committed: it is lost, and another attempt follows."},
		{"worker.finished", "The result is committed and the worker does not know: the execution has ended, once."},

		{"pods.created", "A pod is made and its ConfigMap is not: it waits for it, and the attempt that follows finds the pod and makes the ConfigMap."},
		{"pods.configured", "Pod and ConfigMap are made and nobody waits for them: the program runs, and the attempt that follows carries on."},
		{"pods.adopted", "An attempt has written its number on the pod of the one before it, and is gone: the next one writes a higher number, and carries on."},
		{"pods.recording", "Facts about pods are written with their events and not committed: whoever sees the pods next tells them."},
		{"pods.recorded", "They are committed and their teller does not know: they are told again, and passed over."},
		{"pods.given_up", "A pod that made no progress is gone and nobody was told: why it was given up is noted, so the attempt that follows says it."},
		{"pods.cut_short", "A pod that had not begun at its run limit is gone and nobody was told: that is noted, so the attempt that follows says it."},
		{"pods.expired", "A pod has ended at its run limit and nobody was told: the attempt that follows finds it, and why it has ended."},
		{"pods.stopped", "A pod was ended with its work, which is not wanted any more, and nobody was told: the attempt that follows has nothing to end."},
		{"pods.settling", "The end of an attempt is recorded and its pod is there: the keeper deletes it."},
		{"pods.settled", "The pod is deleted, and nobody was told that it is gone; its ConfigMap may be there: the cluster collects it, and the keeper tells."},
		{"pods.swept", "The keeper has deleted a pod that nobody wants, and nobody was told: the next keeper finds it gone."},

		{"engine.advancing", "What an input of a workflow instance leads to is about to be written and committed: nothing has happened, and the caller asks again or the timer is still due."},
		{"engine.advanced", "It is committed and the caller has no answer: asking again finds it done."},

		{"saga.command_appended", "A command is about to be written with what leads to it, and committed: nothing has happened, and what led to it comes again."},
		{"saga.reply_read", "A reply has arrived and the saga does not know: it comes again."},
		{"saga.reply_applying", "What a reply leads to is about to be written and committed: nothing has happened, and the reply comes again."},
		{"saga.reply_applied", "It is committed and Kafka does not know: the reply comes again, and nobody waits for it."},
		{"saga.compensating", "The first compensation is in the outbox: it is sent, and the saga waits for its reply."},
		{"saga.compensated", "A step is undone and the next compensation is in the outbox: it is sent, and no other one again."},

		{"schedule.firing", "Times of schedules have come, their firings and tasks are written and not committed: whoever looks next finds them due."},
		{"schedule.fired", "They are committed and nobody was woken: the relay polls, and firings that nobody reads are found in the table."},
		{"schedule.taken", "Firings are taken and nothing is made of them: they are taken again when their time is over."},
		{"schedule.made", "Their targets are made and nobody was told: they are taken again, and found to be made."},
		{"schedule.settled", "What became of them is committed, and Kafka does not know: their tasks come again, and nothing is left to do."},

		{"dead_letters.ingesting", "Letters from the topic are written with the position and not committed: they are read again."},
		{"redrive.sending", "A chunk of letters is marked, its records are in the outbox, and nothing is committed: the letters are open."},
		{"redrive.sent", "A chunk is committed and its caller has no answer: the same call goes on with what is open."},
		{"rebuild.prepared", "Empty shadow tables are committed: the next holder of the projection's lease fills them."},
		{"rebuild.loading", "A chunk is merged into the shadow with its cursor and not committed: it is read again."},
		{"rebuild.loaded", "A chunk and its cursor are committed: the next holder goes on behind it."},
		{"rebuild.indexed", "An index of the shadow is committed: the next holder makes those that are missing."},
		{"rebuild.carrying", "Rows that are older than the log are merged into the shadow and not committed: they are merged again."},
		{"rebuild.compared", "What a comparison found is committed: the next holder compares again, for another place in the history."},
		{"rebuild.swapping", "The swap is written and not committed: the tables are as they were, with the shadow beside them."},
		{"rebuild.swapped", "The swap is committed and nobody was told: the rebuild is done."},
		{"redrive.between", "Some chunks are committed and others have not begun: the same call goes on with what is open."},

		{"replay.publishing", "A chunk of a replay is about to be sent: the next keeper sends it."},
		{"replay.published", "The broker has a chunk and the cursor has not moved: it is published once more, under the same ids and session, by which an inbox recognises it."},
		{"replay.advanced", "The cursor has moved and its keeper does not know: the next one goes on from there."},
	}
}
