package verify

// ofAdmission are the assertions about the books that admission keeps.
func ofAdmission() []Check {
	return []Check{
		{
			Name:     "capacity",
			Sentence: "What an execution takes of the capacity of its class is what was asked for.",
			Kind:     Fault,
			SQL: `
SELECT e.id::text, format('%s slots, %s milli-cores, %s bytes, %s gpus of %s; asked for %s, %s, %s, %s of %s',
	e.slots, e.cpu_millis, e.memory_bytes, e.gpus, e.resource_class,
	asked.slots, asked.cpu_millis, asked.memory_bytes, asked.gpus, e.request ->> 'resource_class')
FROM executions e, LATERAL (SELECT
	greatest((e.request #>> '{requirements,slots}')::bigint, 1) AS slots,
	coalesce((e.request #>> '{requirements,cpu_millis}')::bigint, 0) AS cpu_millis,
	coalesce((e.request #>> '{requirements,memory_bytes}')::bigint, 0) AS memory_bytes,
	coalesce((e.request #>> '{requirements,gpus}')::bigint, 0) AS gpus) AS asked
WHERE e.slots <> asked.slots OR e.resource_class <> e.request ->> 'resource_class'
	-- What had ended before these were columns has none of them.
	OR e.state NOT IN ` + terminal() + ` AND
		(e.cpu_millis, e.memory_bytes, e.gpus) <> (asked.cpu_millis, asked.memory_bytes, asked.gpus)`,
		},
		{
			Name: "admission-books",
			Sentence: "The ledger of admission, with what it has not taken in yet, says of every flow how much waits, " +
				"and how much of each resource is scheduled or leased.",
			Kind: Fault,
			SQL: `
WITH books AS (
	SELECT flow, resource_class, sum(queued) AS queued, sum(running) AS running, sum(slots) AS slots,
		sum(cpu_millis) AS cpu_millis, sum(memory_bytes) AS memory_bytes, sum(gpus) AS gpus
	FROM (
		SELECT flow, resource_class, queued, running, slots, cpu_millis, memory_bytes, gpus FROM admission_ledger
		UNION ALL
		SELECT flow, resource_class, queued, running, slots, cpu_millis, memory_bytes, gpus FROM admission_feed) AS entries
	GROUP BY flow, resource_class
), truth AS (
	SELECT flow, resource_class, count(*) FILTER (WHERE state = 'QUEUED') AS queued,
		count(*) FILTER (WHERE state <> 'QUEUED') AS running,
		sum(slots) FILTER (WHERE state <> 'QUEUED') AS slots,
		sum(cpu_millis) FILTER (WHERE state <> 'QUEUED') AS cpu_millis,
		sum(memory_bytes) FILTER (WHERE state <> 'QUEUED') AS memory_bytes,
		sum(gpus) FILTER (WHERE state <> 'QUEUED') AS gpus
	FROM executions WHERE state IN ('QUEUED', 'SCHEDULED', 'RUNNING') GROUP BY flow, resource_class
), sides AS (
	SELECT flow, resource_class,
		ARRAY[coalesce(b.queued, 0), coalesce(b.running, 0), coalesce(b.slots, 0),
			coalesce(b.cpu_millis, 0), coalesce(b.memory_bytes, 0), coalesce(b.gpus, 0)] AS booked,
		ARRAY[coalesce(t.queued, 0), coalesce(t.running, 0), coalesce(t.slots, 0),
			coalesce(t.cpu_millis, 0), coalesce(t.memory_bytes, 0), coalesce(t.gpus, 0)] AS held
	FROM books b FULL JOIN truth t USING (flow, resource_class))
SELECT coalesce(s.flow::text, 'no flow'), format('%s of %s in %s: the books say %s queued, %s admitted with %s slots, ' ||
	'%s milli-cores, %s bytes, %s gpus; the executions are %s, %s with %s, %s, %s, %s',
	coalesce(nullif(l.user_name, ''), '-'), coalesce(l.tenant, '-'), s.resource_class,
	s.booked[1], s.booked[2], s.booked[3], s.booked[4], s.booked[5], s.booked[6],
	s.held[1], s.held[2], s.held[3], s.held[4], s.held[5], s.held[6])
FROM sides s LEFT JOIN admission_flows l ON l.id = s.flow
WHERE s.booked <> s.held`,
		},
		{
			Name:     "flows-known",
			Sentence: "Everything that waits or is admitted is in a flow that is known, for its class, user, executor and priority.",
			Kind:     Fault,
			SQL: `
SELECT e.id::text, format('%s of %s for %s in %s, flow %s: %s', e.user_name, e.tenant, e.executor, e.resource_class, coalesce(e.flow::text, '-'),
	CASE WHEN l.id IS NULL THEN 'not known' ELSE format('%s of %s for %s in %s', l.user_name, l.tenant, l.executor, l.resource_class) END)
FROM executions e LEFT JOIN admission_flows l ON l.id = e.flow
WHERE e.state IN ('QUEUED', 'SCHEDULED', 'RUNNING')
	AND (l.resource_class, l.tenant, l.user_name, l.executor, l.priority)
		IS DISTINCT FROM (e.resource_class, e.tenant, e.user_name, e.executor, (e.request ->> 'priority')::smallint)`,
		},
	}
}
