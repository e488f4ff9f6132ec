-- +millrace needs 20261121126000
-- +goose Up

-- What the first processing of an event has made, such as "execution/<id>", for those
-- that meet the event again; NULL where it is not told.
ALTER TABLE processed_events ADD COLUMN target text;

-- The cluster in which the record of a letter lies, by its own id; empty: that of the
-- installation. What lies elsewhere is not republished when it is redriven, but given to
-- its consumer directly: it waits in dead_letter_redeliveries.
ALTER TABLE dead_letters ADD COLUMN cluster text NOT NULL DEFAULT '';

CREATE TABLE dead_letter_redeliveries (
    dead_letter_id uuid        PRIMARY KEY,
    consumer       text        NOT NULL,
    -- The id that the event gets in place of its own; empty: it keeps it, and is a
    -- repetition where it was processed before.
    event_id       text        NOT NULL DEFAULT '',
    asked_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What a trigger with a limit has made and has not been seen to have ended. Triggers
-- without one have no rows.
CREATE TABLE trigger_targets (
    trigger_uid text        NOT NULL COLLATE "C",
    target      uuid        NOT NULL,
    kind        text        NOT NULL,
    made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (trigger_uid, target)
);

-- +goose Down
DROP TABLE trigger_targets;
DROP TABLE dead_letter_redeliveries;
ALTER TABLE dead_letters DROP COLUMN cluster;
ALTER TABLE processed_events DROP COLUMN target;
