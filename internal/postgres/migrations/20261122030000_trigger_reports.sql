-- +millrace needs 20261121126000
-- +goose Up

-- trigger_members is what the owners of members of triggers say of them
-- (internal/trigger/report), written when it changes. It counts while the lease under
-- which it was written is held; after that it says what was known last.
CREATE TABLE trigger_members (
    uid           text        NOT NULL COLLATE "C",
    member        integer     NOT NULL,
    -- The name of the trigger, and how long it may stand before somebody is told.
    trigger       text        NOT NULL COLLATE "C",
    alert_after   interval    NOT NULL,
    lease         text        NOT NULL,
    owner         text        NOT NULL,
    token         bigint      NOT NULL,
    -- The revision of the definition that it runs.
    revision      bigint      NOT NULL,
    state         text        NOT NULL CHECK (state IN ('starting', 'running', 'error')),
    cause         jsonb,
    since         timestamptz NOT NULL,
    next_try      timestamptz,
    attempts      integer     NOT NULL,
    -- Set by the first error, whoever had the member, until somebody says that it runs.
    failing_since timestamptz,
    notes         jsonb,
    effective     jsonb,
    reported_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (uid, member)
) WITH (fillfactor = 50);

-- trigger_partitions are the partitions of Kafka triggers, one row each, written by the
-- member that has it. A token of 0 says that it has given it up. Rows stay as long as the
-- trigger is there, switched off or not: they say where it was, should the brokers forget.
CREATE TABLE trigger_partitions (
    uid           text        NOT NULL COLLATE "C",
    topic         text        NOT NULL COLLATE "C",
    partition     integer     NOT NULL,
    topic_id      text        NOT NULL COLLATE "C",
    member        integer     NOT NULL,
    token         bigint      NOT NULL,
    state         text        NOT NULL CHECK (state IN ('starting', 'running', 'error')),
    cause         jsonb,
    -- The offset of the next message, or of the one that cannot be taken, and its key.
    position      bigint      NOT NULL,
    key           bytea,
    committed     bigint      NOT NULL,
    log_end       bigint      NOT NULL,
    since         timestamptz NOT NULL,
    next_try      timestamptz,
    attempts      integer     NOT NULL,
    -- Set by the first error at this position, whoever had the partition, until it is passed.
    stalled_since timestamptz,
    reported_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (uid, topic, partition)
) WITH (fillfactor = 50);

-- trigger_notes is what somebody should know of triggers that are switched off, such as
-- offsets that are about to expire at the brokers. Nobody runs these, so it is looked at
-- now and then.
CREATE TABLE trigger_notes (
    uid       text        PRIMARY KEY COLLATE "C",
    trigger   text        NOT NULL COLLATE "C",
    notes     jsonb       NOT NULL,
    -- Since when there are notes.
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    looked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE trigger_notes;
DROP TABLE trigger_partitions;
DROP TABLE trigger_members;
