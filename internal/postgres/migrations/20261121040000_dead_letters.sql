-- +goose Up

-- What makes letters a product: grouping, redrives, and who did what (internal/deadletter).
ALTER TABLE dead_letters
    -- Letters with the same fingerprint failed for the same reason.
    ADD COLUMN fingerprint  text    NOT NULL DEFAULT '' COLLATE "C",
    -- How often the event was given to the consumer again, over all of its letters.
    ADD COLUMN replay_count integer NOT NULL DEFAULT 0,
    -- The letter whose redrive failed and led to this one.
    ADD COLUMN redrive_of   uuid,
    ADD CONSTRAINT dead_letters_known_status CHECK (status IN ('OPEN', 'REDRIVEN', 'RESOLVED', 'DISCARDED'));

-- Letters of before have no normalised error; the type of it is the best there is.
UPDATE dead_letters
SET fingerprint = left(encode(sha256(convert_to(consumer || '/' || class || '/' || error_type || '/' || cause_type, 'UTF8')), 'hex'), 16);

CREATE INDEX dead_letters_newest      ON dead_letters (last_failed_at DESC, id DESC);
CREATE INDEX dead_letters_fingerprint ON dead_letters (fingerprint, last_failed_at DESC, id DESC);
-- A key may be longer than an entry of a b-tree.
CREATE INDEX dead_letters_key         ON dead_letters USING hash (key);
-- Redrives go from the oldest to the newest.
CREATE INDEX dead_letters_open        ON dead_letters (id) WHERE status = 'OPEN';

-- dead_letter_actions is what people did with dead letters. It is kept when the
-- letter itself is gone.
CREATE TABLE dead_letter_actions (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dead_letter_id uuid        NOT NULL,
    at             timestamptz NOT NULL DEFAULT now(),
    actor          text        NOT NULL,
    action         text        NOT NULL,
    reason         text        NOT NULL DEFAULT '',
    forced         boolean     NOT NULL DEFAULT false
);
CREATE INDEX dead_letter_actions_letter ON dead_letter_actions (dead_letter_id, id);

-- +goose Down
DROP TABLE dead_letter_actions;
DROP INDEX dead_letters_newest, dead_letters_fingerprint, dead_letters_key, dead_letters_open;
ALTER TABLE dead_letters
    DROP CONSTRAINT dead_letters_known_status,
    DROP COLUMN fingerprint, DROP COLUMN replay_count, DROP COLUMN redrive_of;
