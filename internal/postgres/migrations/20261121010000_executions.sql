-- +goose Up

-- executions is the write model of the execution aggregate (internal/execution):
-- one row per execution, changed only under its row lock, in the transaction that
-- also writes the event to the outbox.
CREATE TABLE executions (
    id               uuid        PRIMARY KEY,
    tenant           text        NOT NULL,
    user_name        text        NOT NULL,
    executor         text        NOT NULL,
    resource_class   text        NOT NULL,
    slots            integer     NOT NULL,
    concurrency_key  text,
    -- The place among the executions with the same concurrency key, drawn under
    -- an advisory lock on that key, so that it is the order of commit.
    concurrency_seq  bigint,
    request          jsonb       NOT NULL,
    state            text        NOT NULL,
    version          bigint      NOT NULL,
    attempt          integer     NOT NULL DEFAULT 0,
    failures         integer     NOT NULL DEFAULT 0,
    deliveries       integer     NOT NULL DEFAULT 0,
    ready_at         timestamptz,
    -- The place in the admission queue; see execution.Execution.Rank.
    rank             timestamptz,
    due_at           timestamptz,
    requested_at     timestamptz NOT NULL,
    queued_at        timestamptz,
    scheduled_at     timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz,
    worker           text,
    lease_expires_at timestamptz,
    cancel           jsonb,
    result           jsonb
) WITH (fillfactor = 70);

-- Each index covers one state, so that it holds only work that is open there:
-- finished executions are in none of them, however many there are.
CREATE INDEX executions_queued    ON executions (resource_class, rank, id) WHERE state = 'QUEUED';
CREATE INDEX executions_scheduled ON executions (resource_class, rank, id) WHERE state = 'SCHEDULED';
-- The capacity in use, by class: scheduled plus leased.
CREATE INDEX executions_admitted  ON executions (resource_class) INCLUDE (slots)
    WHERE state IN ('SCHEDULED', 'RUNNING');
CREATE INDEX executions_leased    ON executions (worker) WHERE state = 'RUNNING';
CREATE INDEX executions_due       ON executions (due_at) WHERE due_at IS NOT NULL;
-- The head of each concurrency key: its lowest execution that has not ended.
CREATE INDEX executions_concurrency ON executions (tenant, concurrency_key, concurrency_seq)
    WHERE concurrency_key IS NOT NULL
      AND state IN ('REQUESTED', 'QUEUED', 'SCHEDULED', 'RUNNING');

CREATE SEQUENCE execution_concurrency_seq AS bigint;

-- idempotency_keys remembers which execution a key led to and with what request,
-- so that a repeated submit returns the first one and a different request under
-- the same key is refused.
CREATE TABLE idempotency_keys (
    tenant       text        NOT NULL,
    key          text        NOT NULL,
    request_hash bytea       NOT NULL,
    execution_id uuid        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, key)
);

-- execution_outputs holds the captured output, in chunks, per attempt and stream.
CREATE TABLE execution_outputs (
    execution_id uuid    NOT NULL,
    attempt      integer NOT NULL,
    stream       text    NOT NULL,
    index        integer NOT NULL,
    start_offset bigint  NOT NULL,
    data         bytea   NOT NULL,
    PRIMARY KEY (execution_id, attempt, stream, index)
);

-- workers is what the workers announce of themselves: the capacity that the
-- coordinator may hand out. A row counts until expires_at.
CREATE TABLE workers (
    id             text        NOT NULL,
    resource_class text        NOT NULL,
    slots          integer     NOT NULL,
    executors      text[]      NOT NULL,
    announced_at   timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    PRIMARY KEY (id, resource_class)
);

-- +goose Down
DROP TABLE workers;
DROP TABLE execution_outputs;
DROP TABLE idempotency_keys;
DROP SEQUENCE execution_concurrency_seq;
DROP TABLE executions;
