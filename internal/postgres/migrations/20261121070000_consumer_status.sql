-- +goose Up

-- consumers are all consumers that ever ran here (internal/consumers), and what
-- people want of them. A process registers its own when it starts.
CREATE TABLE consumers (
    name           text        PRIMARY KEY COLLATE "C",
    consumer_group text        NOT NULL COLLATE "C",
    -- The name at the broker.
    topic          text        NOT NULL COLLATE "C",
    kind           text        NOT NULL,
    -- Whether it recognises events that it has applied before.
    inbox          boolean     NOT NULL,
    registered_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Set while nothing is to be handed to its handler, in any process.
    paused_at      timestamptz,
    paused_by      text,
    pause_reason   text
);

-- consumer_instances are the processes that run consumers. What they reported
-- counts while seen_at is recent; it is the only thing that an idle process writes.
CREATE TABLE consumer_instances (
    instance   text        PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- consumer_reports are the partitions that processes own, written when something
-- changes: never for a record that was handled. Positions are elsewhere, in
-- consumer_offsets and in Kafka.
CREATE TABLE consumer_reports (
    consumer       text        NOT NULL COLLATE "C",
    topic          text        NOT NULL COLLATE "C",
    partition      integer     NOT NULL,
    instance       text        NOT NULL REFERENCES consumer_instances ON DELETE CASCADE,
    epoch          bigint      NOT NULL,
    state          text        NOT NULL CHECK (state IN ('running', 'stalled', 'offset_problem')),
    paused         boolean     NOT NULL,
    -- Why it is not running, and at which record.
    cause_class    text,
    cause_code     text,
    cause_error    text,
    blocked_offset bigint,
    blocked_key    bytea,
    stalled_since  timestamptz,
    tries          integer     NOT NULL DEFAULT 0,
    next_try_at    timestamptz,
    -- What is odd although it is running.
    notice         text,
    reported_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, topic, partition, instance)
) WITH (fillfactor = 50);

CREATE INDEX consumer_reports_instance ON consumer_reports (instance);

-- A position that somebody has moved, until its owner has taken it up.
ALTER TABLE consumer_offsets ADD COLUMN sought boolean NOT NULL DEFAULT false;

-- What people did to consumers, and why. A row is written in the transaction of the
-- deed. Where the deed is that of a partition's owner, the row is first the command
-- (PENDING), and the owner's transaction ends it.
CREATE TABLE consumer_actions (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor       text        NOT NULL,
    action      text        NOT NULL CHECK (action IN ('pause', 'resume', 'seek', 'retry', 'dead_letter')),
    reason      text        NOT NULL,
    consumer    text        NOT NULL COLLATE "C",
    topic       text,
    partition   integer,
    -- Of a seek: from where to where. Of a dead letter: the record's.
    from_offset bigint,
    to_offset   bigint,
    outcome     text        NOT NULL CHECK (outcome IN ('PENDING', 'DONE', 'REFUSED', 'EXPIRED')),
    detail      text,
    -- When a PENDING command lapses.
    expires_at  timestamptz,
    finished_at timestamptz,
    -- The process that carried it out.
    instance    text
);

CREATE INDEX consumer_actions_pending  ON consumer_actions (consumer) WHERE outcome = 'PENDING';
CREATE INDEX consumer_actions_consumer ON consumer_actions (consumer, id);

-- +goose Down
DROP TABLE consumer_actions;
ALTER TABLE consumer_offsets DROP COLUMN sought;
DROP TABLE consumer_reports;
DROP TABLE consumer_instances;
DROP TABLE consumers;
