-- +goose Up

-- outbox_events holds what is to be published (internal/outbox). A row is written
-- in the transaction of the change that it reports; the relay publishes it later.
CREATE SEQUENCE outbox_events_seq AS bigint
    -- No cache: a session that hoarded numbers would hand out low ones late, and
    -- seq would no longer be the order of commit per aggregate.
    CACHE 1;

CREATE TABLE outbox_events (
    seq             bigint      NOT NULL DEFAULT nextval('outbox_events_seq'),
    id              uuid        NOT NULL,
    -- The first byte of SHA-256 of aggregate_id (UTF-8), modulo the 16 shards: the
    -- same in Go, in SQL and in every language that may write here.
    shard           smallint    NOT NULL,
    aggregate_type  text        NOT NULL,
    aggregate_id    text        NOT NULL,
    event_type      text        NOT NULL,
    -- The logical name; the relay knows what the topic is called at the broker.
    topic           text        NOT NULL,
    -- Bytes, since keys of foreign records need not be text. NULL: no key.
    partition_key   bytea,
    -- NULL: a tombstone.
    payload         bytea,
    -- Ordered, multi-valued and binary-safe, as headers are in Kafka; see
    -- EncodeHeaders in internal/outbox. jsonb is none of the three.
    headers         bytea       NOT NULL,
    -- Text rather than a number, for the people who look at this table in an
    -- incident. It costs about ten bytes in a row of some hundred.
    status          text        NOT NULL DEFAULT 'PENDING'
                                CHECK (status IN ('PENDING', 'PUBLISHED', 'FAILED')),
    -- How often the broker rejected the record.
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    last_error      text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at    timestamptz,
    -- created_at is in the key so that the table can become one partition of many
    -- by day.
    PRIMARY KEY (seq, created_at)
) WITH (
    -- Every row is updated once, so autovacuum should come by number of rows and
    -- not by share of a table that keeps a month of published ones.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000
);

-- The relay reads each of its shards in order through this index, which holds
-- open rows only, however many published ones there are.
CREATE INDEX outbox_events_open ON outbox_events (shard, seq) WHERE status = 'PENDING';

-- Rows that hold up their aggregate: rejected, waiting for another attempt or for
-- somebody to resolve them. As good as always empty.
CREATE INDEX outbox_events_blocking ON outbox_events (shard, aggregate_type, aggregate_id)
    WHERE attempts > 0 AND status <> 'PUBLISHED';

ALTER SEQUENCE outbox_events_seq OWNED BY outbox_events.seq;

-- +goose Down
DROP TABLE outbox_events;
