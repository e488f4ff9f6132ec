-- +goose Up

-- consumer_offsets is the position of each OnTx and OnBatchTx consumer
-- (internal/inbox): the truth, moved in the transaction of the effect. The
-- position that Kafka keeps follows it and is what lag tools see.
CREATE TABLE consumer_offsets (
    consumer_group text        NOT NULL COLLATE "C",
    -- Part of the key, since a topic that was deleted and created again starts
    -- over at offset 0 under the same name.
    topic_id       uuid        NOT NULL,
    topic          text        NOT NULL COLLATE "C",
    partition      integer     NOT NULL,
    -- The first offset that is not settled; -1 before the first settled record.
    next_offset    bigint      NOT NULL DEFAULT -1,
    -- Incremented whenever a process takes the partition. An effect commits only
    -- under the current epoch, so a former owner can do nothing.
    owner_epoch    bigint      NOT NULL,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_group, topic_id, partition)
-- Each row is updated with every transaction of its partition. Room on the page
-- keeps those updates on it (HOT), and early vacuum keeps the page short.
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- processed_events is the inbox: which events a consumer has applied, wherever
-- they lay. Repetition of an offset is caught by consumer_offsets; this catches an
-- event that lies in the log twice (relay crash, republish, restored backup).
CREATE TABLE processed_events (
    consumer     text        NOT NULL COLLATE "C",
    source       text        NOT NULL COLLATE "C",
    event_id     text        NOT NULL COLLATE "C",
    -- The replay session, or empty: a replay is a repetition of its own.
    session      text        NOT NULL COLLATE "C",
    processed_at timestamptz NOT NULL DEFAULT now(),
    -- Ids of our own events ascend (UUIDv7), so inserts stay at the right edge of
    -- the consumer's part of the index.
    PRIMARY KEY (consumer, source, event_id, session)
);

-- dead_letters are the records that consumers gave up on. For OnTx and OnBatchTx
-- consumers a row is written in the transaction that moves their position.
CREATE TABLE dead_letters (
    id              uuid        PRIMARY KEY,
    consumer        text        NOT NULL,
    consumer_group  text        NOT NULL,
    topic           text        NOT NULL,
    topic_id        uuid        NOT NULL,
    partition       integer     NOT NULL,
    "offset"        bigint      NOT NULL,
    record_time     timestamptz,
    -- NULL and empty are different things, here as in Kafka.
    key             bytea,
    value           bytea,
    -- Two arrays of one length, since headers are an ordered, multi-valued,
    -- binary-safe list; jsonb is none of the three.
    header_keys     bytea[]     NOT NULL,
    header_values   bytea[]     NOT NULL,
    -- NULL when the record could not be decoded.
    event_type      text,
    source          text,
    event_id        text,
    replay_session  text        NOT NULL DEFAULT '',
    class           text        NOT NULL,
    reason          text        NOT NULL,
    error           text        NOT NULL,
    error_type      text        NOT NULL,
    cause_type      text        NOT NULL,
    attempts        integer     NOT NULL,
    first_failed_at timestamptz NOT NULL,
    last_failed_at  timestamptz NOT NULL,
    status          text        NOT NULL DEFAULT 'OPEN',
    -- What makes a dead letter the same when it is filed twice.
    UNIQUE (consumer, topic_id, partition, "offset")
);

-- Lists go from the newest to the oldest.
CREATE INDEX dead_letters_status   ON dead_letters (status, last_failed_at DESC, id DESC);
CREATE INDEX dead_letters_consumer ON dead_letters (consumer, status, last_failed_at DESC, id DESC);

-- +goose Down
DROP TABLE dead_letters;
DROP TABLE processed_events;
DROP TABLE consumer_offsets;
