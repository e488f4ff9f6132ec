-- +goose Up

-- Admission (internal/admission, internal/execution/store). A lane holds what waits
-- for one resource class and has the same things in its way: one user, one executor,
-- one priority, the same keys of limits. Its id is a digest of these, so that whoever queues an
-- execution knows it.
CREATE TABLE admission_lanes (
    id             uuid        PRIMARY KEY,
    resource_class text        NOT NULL,
    tenant         text        NOT NULL,
    user_name      text        NOT NULL,
    executor       text        NOT NULL,
    priority       smallint    NOT NULL,
    -- [{"limit": ..., "value": ...}], by name of the limit.
    keys           jsonb       NOT NULL DEFAULT '[]',
    created_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX admission_lanes_by_user ON admission_lanes (tenant, user_name);
CREATE INDEX admission_lanes_by_class ON admission_lanes (resource_class);

-- What waits and what is in use, by lane. Only the admitter of the class writes it:
-- it folds the feed into it. At any moment
--     admission_ledger + admission_feed = the sum over executions,
-- which is what a query can prove. Nothing here is ever contended for.
CREATE TABLE admission_ledger (
    lane           uuid   PRIMARY KEY,
    resource_class text   NOT NULL,
    queued         bigint NOT NULL DEFAULT 0,
    running        bigint NOT NULL DEFAULT 0,
    slots          bigint NOT NULL DEFAULT 0,
    cpu_millis     bigint NOT NULL DEFAULT 0,
    memory_bytes   bigint NOT NULL DEFAULT 0,
    gpus           bigint NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX admission_ledger_by_class ON admission_ledger (resource_class);

-- What transactions have changed and the admitter of the class has not seen yet:
-- inserted by whoever changes an execution, in the same transaction, and removed by
-- the admitter. It is also how the admitter learns of arrivals and of capacity that
-- is free again.
CREATE TABLE admission_feed (
    resource_class text   NOT NULL,
    lane           uuid   NOT NULL,
    -- Whose change it is. An admitter has seen all of transactions before the oldest
    -- that was open when it last looked, so it never reads the dead rows again.
    tx             xid8   NOT NULL DEFAULT pg_current_xact_id(),
    queued         integer NOT NULL,
    running        integer NOT NULL,
    slots          bigint NOT NULL,
    cpu_millis     bigint NOT NULL,
    memory_bytes   bigint NOT NULL,
    gpus           bigint NOT NULL,
    -- The earliest rank of what has come into the lane and may be admitted.
    rank           timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0);
CREATE INDEX admission_feed_by_class ON admission_feed (resource_class, tx);

-- The state of each key of each limit: of its rate (see limits.Definition.Take) and
-- of its concurrency. A row is locked by the transaction that decides; where two lock
-- several, they do so in the order of the primary key.
CREATE TABLE limit_buckets (
    limit_name text        COLLATE "C" NOT NULL,
    key        text        COLLATE "C" NOT NULL,
    tat_nanos  bigint      NOT NULL DEFAULT 0,
    in_use     bigint      NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (limit_name, key)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

ALTER TABLE executions
    ADD COLUMN lane         uuid,
    ADD COLUMN cpu_millis   bigint   NOT NULL DEFAULT 0,
    ADD COLUMN memory_bytes bigint   NOT NULL DEFAULT 0,
    ADD COLUMN gpus         integer  NOT NULL DEFAULT 0,
    -- What of its own keeps a queued execution from being admitted: 0 nothing, 1 its
    -- concurrency key is taken, 2 its time has not come, 3 no worker is large enough.
    -- See execution.Waiting.
    ADD COLUMN waits        smallint NOT NULL DEFAULT 0;

UPDATE executions SET
    waits = CASE WHEN gated THEN 1 WHEN state = 'QUEUED' AND ready_at > now() THEN 2 ELSE 0 END,
    cpu_millis = coalesce((request #>> '{requirements,cpu_millis}')::bigint, 0),
    memory_bytes = coalesce((request #>> '{requirements,memory_bytes}')::bigint, 0),
    gpus = coalesce((request #>> '{requirements,gpus}')::integer, 0),
    -- As admission.NewLane does it, for a lane without keys.
    lane = encode(substring(sha256(convert_to(
        octet_length(resource_class) || ':' || resource_class || octet_length(tenant) || ':' || tenant ||
        octet_length(user_name) || ':' || user_name || octet_length(executor) || ':' || executor ||
        '1:' || (request ->> 'priority'), 'UTF8')) FROM 1 FOR 16), 'hex')::uuid
WHERE state IN ('REQUESTED', 'QUEUED', 'SCHEDULED', 'RUNNING');

INSERT INTO admission_lanes (id, resource_class, tenant, user_name, executor, priority)
SELECT DISTINCT lane, resource_class, tenant, user_name, executor, (request ->> 'priority')::smallint FROM executions
WHERE state IN ('QUEUED', 'SCHEDULED', 'RUNNING');

INSERT INTO admission_ledger (lane, resource_class, queued, running, slots, cpu_millis, memory_bytes, gpus)
SELECT lane, resource_class, count(*) FILTER (WHERE state = 'QUEUED'), count(*) FILTER (WHERE state <> 'QUEUED'),
    coalesce(sum(slots) FILTER (WHERE state <> 'QUEUED'), 0), coalesce(sum(cpu_millis) FILTER (WHERE state <> 'QUEUED'), 0),
    coalesce(sum(memory_bytes) FILTER (WHERE state <> 'QUEUED'), 0), coalesce(sum(gpus) FILTER (WHERE state <> 'QUEUED'), 0)
FROM executions WHERE state IN ('QUEUED', 'SCHEDULED', 'RUNNING') GROUP BY lane, resource_class;

DROP INDEX executions_queued;
DROP INDEX executions_admitted;
ALTER TABLE executions DROP COLUMN gated;
CREATE INDEX executions_queued ON executions (lane, rank, id) WHERE state = 'QUEUED' AND waits = 0;
CREATE INDEX executions_early  ON executions (resource_class, ready_at) WHERE state = 'QUEUED' AND waits = 2;
CREATE INDEX executions_large  ON executions (resource_class, id) WHERE state = 'QUEUED' AND waits = 3;

-- +goose Down
DROP INDEX executions_large;
DROP INDEX executions_early;
DROP INDEX executions_queued;
ALTER TABLE executions ADD COLUMN gated boolean NOT NULL DEFAULT false;
UPDATE executions SET gated = true WHERE waits = 1 AND state = 'QUEUED';
ALTER TABLE executions DROP COLUMN lane, DROP COLUMN cpu_millis, DROP COLUMN memory_bytes, DROP COLUMN gpus, DROP COLUMN waits;
CREATE INDEX executions_queued ON executions (resource_class, rank, id) WHERE state = 'QUEUED' AND NOT gated;
CREATE INDEX executions_admitted ON executions (resource_class) INCLUDE (slots) WHERE state IN ('SCHEDULED', 'RUNNING');
DROP TABLE limit_buckets;
DROP TABLE admission_feed;
DROP TABLE admission_ledger;
DROP TABLE admission_lanes;
