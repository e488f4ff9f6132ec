-- +goose Up

-- How often a letter was edited. What a redrive sends is the last edit's record.
ALTER TABLE dead_letters ADD COLUMN edits integer NOT NULL DEFAULT 0;

-- dead_letter_edits holds the record of a dead letter after each edit. The letter
-- itself keeps the original, so what an edit changed is told by the one before.
CREATE TABLE dead_letter_edits (
    dead_letter_id uuid        NOT NULL,
    number         integer     NOT NULL, -- from 1
    at             timestamptz NOT NULL DEFAULT now(),
    actor          text        NOT NULL,
    reason         text        NOT NULL,
    -- The record breaks the schema of its type, and somebody wanted it so.
    forced         boolean     NOT NULL,
    key            bytea,
    value          bytea,
    header_keys    bytea[]     NOT NULL,
    header_values  bytea[]     NOT NULL,
    PRIMARY KEY (dead_letter_id, number)
);

-- +goose Down
DROP TABLE dead_letter_edits;
ALTER TABLE dead_letters DROP COLUMN edits;
