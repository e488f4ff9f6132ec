package verify

import "slices"

// Checks returns all assertions, in the order in which they are run.
func Checks() []Check {
	return slices.Concat(ofExecutions(), ofAdmission(), ofHistories(), ofOutbox(), ofConsumers(), ofDeadLetters())
}

// ofExecutions are the assertions about the write model alone.
func ofExecutions() []Check {
	return []Check{
		{
			Name:     "leases",
			Sentence: "Every running execution has a worker, a lease and a time at which it ends; no other one has a lease.",
			Kind:     Fault,
			SQL: `
SELECT id::text, format('%s, attempt %s, worker %s, lease until %s, due at %s', state, attempt, worker, lease_expires_at, due_at)
FROM executions
WHERE state = 'RUNNING' AND (worker IS NULL OR lease_expires_at IS NULL OR due_at IS NULL OR started_at IS NULL OR attempt < 1)
	OR state <> 'RUNNING' AND lease_expires_at IS NOT NULL`,
		},
		{
			Name:     "offers",
			Sentence: "Only a scheduled execution is on offer to workers that have not seen its task.",
			Kind:     Fault,
			SQL: `
SELECT id::text, format('is %s, and on offer since %s', state, offered_at)
FROM executions WHERE offered_at IS NOT NULL AND state <> 'SCHEDULED'`,
		},
		{
			Name:     "ends",
			Sentence: "An execution has ended if and only if it has a time of its end and a result, and then nothing is due any more.",
			Kind:     Fault,
			SQL: `
SELECT id::text, format('%s, finished at %s, result %s, due at %s', state, finished_at, result IS NOT NULL, due_at)
FROM executions
WHERE CASE WHEN state IN ` + terminal() + ` THEN finished_at IS NULL OR result IS NULL OR due_at IS NOT NULL
	ELSE finished_at IS NOT NULL OR result IS NOT NULL END`,
		},
		{
			Name:     "concurrency-keys",
			Sentence: "Of the executions with one concurrency key only the first that has not ended is admitted.",
			Kind:     Fault,
			SQL: `
SELECT e.id::text, format('%s is %s before %s, which is %s', e.concurrency_key, e.state, head.id, head.state)
FROM executions e JOIN executions head USING (tenant, concurrency_key)
WHERE e.state IN ('SCHEDULED', 'RUNNING') AND head.concurrency_seq < e.concurrency_seq
	AND head.state IN ('REQUESTED', 'QUEUED', 'SCHEDULED', 'RUNNING')`,
		},
		{
			Name:     "due",
			Sentence: "Limits and leases that have passed are dealt with within a minute.",
			Kind:     Notice,
			SQL: `
SELECT id::text, format('%s, due since %s', state, due_at) FROM executions WHERE due_at < now() - interval '1 minute'`,
		},
	}
}

// ofOutbox are the assertions about the outbox as the relay sees it.
func ofOutbox() []Check {
	return []Check{
		{
			Name:     "outbox-rows",
			Sentence: "Every row of the outbox is in the shard of its aggregate and has the columns of its status.",
			Kind:     Fault,
			SQL: `
SELECT seq::text, format('%s of %s in shard %s, published at %s', status, aggregate_id, shard, published_at)
FROM outbox_events
WHERE created_at >= ` + sinceTime + ` AND ((status = 'PUBLISHED') <> (published_at IS NOT NULL)
	OR status IN ('PENDING', 'FAILED') AND shard <> get_byte(sha256(convert_to(aggregate_id, 'UTF8')), 0) % 16
	OR status = 'FAILED' AND attempts = 0)`,
		},
		{
			Name:     "publish-order",
			Sentence: "No event was published before an earlier one of the same aggregate.",
			Kind:     Fault,
			SQL: `
SELECT open.seq::text, format('%s of %s is %s, and %s behind it is published', open.event_type, open.aggregate_id, open.status, min(o.seq))
FROM outbox_events open JOIN outbox_events o USING (shard, aggregate_type, aggregate_id)
WHERE open.status IN ('PENDING', 'FAILED') AND open.republished_from IS NULL
	AND o.status = 'PUBLISHED' AND o.republished_from IS NULL AND o.seq > open.seq
GROUP BY open.seq, open.event_type, open.aggregate_id, open.status`,
		},
		{
			Name:     "outbox-drained",
			Sentence: "Everything in the outbox is published, or was taken out of the way by somebody.",
			Kind:     Fault, Settled: true,
			SQL: `
SELECT seq::text, format('%s of %s is %s after %s attempts: %s', event_type, aggregate_id, status, attempts, last_error)
FROM outbox_events WHERE status IN ('PENDING', 'FAILED')`,
		},
	}
}

// ofConsumers are the assertions about positions and read models.
func ofConsumers() []Check {
	return []Check{
		{
			Name:     "positions",
			Sentence: "Every consumer's position is one that a partition can have, under an epoch that somebody has taken.",
			Kind:     Fault,
			SQL: `
SELECT format('%s %s/%s', consumer_group, topic, partition), format('position %s, epoch %s', next_offset, owner_epoch)
FROM consumer_offsets WHERE next_offset < -1 OR owner_epoch < 1 OR partition < 0`,
		},
		{
			Name: "positions-moved",
			Sentence: "Nothing was recorded, or filed as a dead letter, at or above its consumer's position; " +
				"once somebody has moved the position back there is.",
			Kind: Notice,
			SQL: `
SELECT format('%s %s/%s', o.consumer_group, o.topic, o.partition), format('position %s, a dead letter at %s', o.next_offset, d."offset")
FROM consumer_offsets o JOIN dead_letters d USING (consumer_group, topic_id, partition) WHERE d."offset" >= o.next_offset
UNION ALL
SELECT format('%s %s/%s', o.consumer_group, o.topic, o.partition), format('position %s, recorded up to %s', o.next_offset, max(l."offset"))
FROM consumer_offsets o JOIN event_log_topics t USING (topic_id, topic) JOIN event_log l ON l.topic_no = t.no AND l.partition = o.partition AND l."offset" >= o.next_offset
WHERE o.consumer_group LIKE '%recorder' OR o.consumer_group LIKE '%recorder.%'
GROUP BY o.consumer_group, o.topic, o.partition, o.next_offset`,
		},
		{
			Name:     "views-agree",
			Sentence: "A view that has seen all events of its execution says what the execution says, and none has seen more.",
			Kind:     Fault,
			SQL: "WITH " + written + ", " + logged + ", " + phantoms + `
SELECT v.id, format('version %s of %s: %s, attempt %s, %s; the view: %s, attempt %s, %s', v.version, e.version,
	e.state, e.attempt, coalesce(nullif(e.result ->> 'reason', ''), '-'), v.state, v.attempt, coalesce(v.reason, '-'))
FROM execution_views v LEFT JOIN executions e ON e.id::text = v.id
WHERE v.id >= ` + sinceID + ` AND NOT EXISTS (SELECT FROM phantoms p WHERE p.id = v.id) AND ` + unpurged + `v.id)
	AND (e.id IS NULL OR v.version > e.version OR v.version = e.version AND (
		(v.state, v.attempt, v.tenant, v.user_name, v.executor, v.resource_class)
			IS DISTINCT FROM (e.state, e.attempt, e.tenant, e.user_name, e.executor, e.resource_class)
		OR e.state IN ` + terminal() + ` AND (v.exit_code, v.reason) IS DISTINCT FROM
			((e.result ->> 'exit_code')::integer, nullif(e.result ->> 'reason', ''))))`,
		},
		{
			Name:     "views-caught-up",
			Sentence: "Every execution has a view that has seen all of its events.",
			Kind:     Fault, Settled: true,
			SQL: `
SELECT e.id::text, format('version %s, the view %s', e.version, coalesce(v.version::text, 'is missing'))
FROM executions e LEFT JOIN execution_views v ON v.id = e.id::text
WHERE e.id >= ` + sinceID + `::uuid AND coalesce(v.version, 0) < e.version`,
		},
	}
}

// ofDeadLetters are the assertions about dead letters.
func ofDeadLetters() []Check {
	return []Check{
		{
			Name:     "dead-letters-accounted",
			Sentence: "A dead letter that was redriven or discarded has an entry in the audit that says so.",
			Kind:     Fault,
			SQL: `
SELECT d.id::text, format('%s of %s, without an entry', d.status, d.consumer) FROM dead_letters d
WHERE d.status = 'REDRIVEN' AND NOT EXISTS (SELECT FROM dead_letter_actions a WHERE a.dead_letter_id = d.id AND a.action = 'redrive')
	OR d.status = 'DISCARDED' AND NOT EXISTS (SELECT FROM dead_letter_actions a WHERE a.dead_letter_id = d.id AND a.action = 'discard')`,
		},
		{
			Name:     "redrives-sent",
			Sentence: "Every redrive has put its record into the outbox exactly once, unless it went into the lane of its key, or to its consumer directly.",
			Kind:     Fault,
			// The header is found as the sequence is, see written: its name has 22
			// characters, its value is a UUID of 36. A redrive in a lane is known by
			// its detail, see deadletter.InLane; so is one that takes no topic (Directly).
			SQL: `
WITH sent AS (
	SELECT convert_from(substring(headers FROM position('\x00000016646561642d6c65747465722d726564726976652d6f6600000024'::bytea IN headers) + 30 FOR 36), 'UTF8') AS id,
		count(*) AS n
	FROM outbox_events
	WHERE aggregate_type = 'redrive' AND republished_from IS NULL
		AND position('\x00000016646561642d6c65747465722d726564726976652d6f6600000024'::bytea IN headers) > 0
	GROUP BY 1
), asked AS (
	SELECT dead_letter_id::text AS id, count(*) AS n FROM dead_letter_actions
	WHERE action = 'redrive' AND detail NOT LIKE 'in its lane%' AND detail NOT LIKE 'directly%' AND at > (SELECT min(created_at) FROM outbox_events) GROUP BY 1)
SELECT id, format('%s redrives, %s records', coalesce(asked.n, 0), coalesce(sent.n, 0))
FROM asked FULL JOIN sent USING (id)
WHERE coalesce(asked.n, 0) > coalesce(sent.n, 0) OR asked.n < sent.n`,
		},
	}
}
