-- +goose Up

-- How many lanes of the partition may be open: never fewer than there are. It lies
-- in the row that every transaction of the owner locks, so where it is 0 nobody asks
-- further.
ALTER TABLE consumer_offsets ADD COLUMN lanes integer NOT NULL DEFAULT 0;

-- parked_lanes are the keys of consumers ordered per key (internal/parking) that
-- wait behind a dead letter. The owner of the partition opens them; whoever holds
-- the lease drains and closes them.
CREATE TABLE parked_lanes (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer       text        NOT NULL COLLATE "C",
    consumer_group text        NOT NULL COLLATE "C",
    topic_id       uuid        NOT NULL,
    topic          text        NOT NULL COLLATE "C",
    partition      integer     NOT NULL,
    key            bytea       NOT NULL,
    -- SHA-256: a key may be longer than an entry of a b-tree.
    key_hash       bytea       NOT NULL,
    -- The dead letter that the others wait for; NULL once it is settled. While it
    -- is OPEN nothing moves.
    head           uuid,
    -- The offset of the head, or of the last event that was settled in the lane.
    -- What is parked lies behind it.
    reached        bigint      NOT NULL,
    opened_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who drains it: the token is incremented by whoever takes it, and an effect
    -- commits only under the current one.
    token          bigint      NOT NULL DEFAULT 0,
    leased_until   timestamptz,
    -- After a fault that was not the event's.
    tries          integer     NOT NULL DEFAULT 0,
    next_try_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    error          text        NOT NULL DEFAULT '',
    UNIQUE (consumer_group, topic_id, partition, key_hash)
) WITH (fillfactor = 50);

CREATE INDEX parked_lanes_head ON parked_lanes (head) WHERE head IS NOT NULL;

-- parked_events are the records that wait in a lane, as they came. The redriven
-- head is one of them, the first.
CREATE TABLE parked_events (
    -- No cascade: a lane in which something waits cannot go away.
    lane          bigint      NOT NULL REFERENCES parked_lanes,
    "offset"      bigint      NOT NULL,
    record_time   timestamptz,
    key           bytea,
    value         bytea,
    -- As in dead_letters.
    header_keys   bytea[]     NOT NULL,
    header_values bytea[]     NOT NULL,
    parked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane, "offset")
);

-- +goose Down
DROP TABLE parked_events;
DROP TABLE parked_lanes;
ALTER TABLE consumer_offsets DROP COLUMN lanes;
