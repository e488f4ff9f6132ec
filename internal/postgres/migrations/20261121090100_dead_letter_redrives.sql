-- +goose Up

-- dead_letter_redrives are redrives of many: what to redrive, how fast, and how
-- far it has come. A chunk of letters and the row are changed in one transaction.
CREATE TABLE dead_letter_redrives (
    id          uuid             PRIMARY KEY,
    state       text             NOT NULL DEFAULT 'RUNNING'
        CONSTRAINT dead_letter_redrives_known_state CHECK (state IN ('RUNNING', 'PAUSED', 'STOPPED', 'DONE', 'CANCELLED')),
    filter      jsonb            NOT NULL,
    max_letters bigint,          -- NULL: all
    rate        double precision, -- letters per second; NULL: as fast as it goes
    stop_above  double precision, -- share of letters that went wrong; NULL: never
    force       boolean          NOT NULL,
    new_id      boolean          NOT NULL,
    actor       text             NOT NULL,
    reason      text             NOT NULL,
    -- How many letters the filter selected at the start, and the last of them: what
    -- is filed later, such as what fails again, is not part of it.
    matched     bigint           NOT NULL,
    last_letter uuid             NOT NULL,
    -- The last letter that was looked at.
    cursor      uuid             NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    redriven    bigint           NOT NULL DEFAULT 0,
    refused     bigint           NOT NULL DEFAULT 0,
    -- What had gone wrong, and out of how many, when it was last resumed.
    bad_before  bigint           NOT NULL DEFAULT 0,
    seen_before bigint           NOT NULL DEFAULT 0,
    note        text             NOT NULL DEFAULT '', -- why it stopped
    created_at  timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz      NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    next_at     timestamptz      NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX dead_letter_redrives_due    ON dead_letter_redrives (next_at) WHERE state = 'RUNNING';
CREATE INDEX dead_letter_redrives_newest ON dead_letter_redrives (created_at DESC, id DESC);

-- dead_letter_redrive_items is what became of each letter of a redrive.
CREATE TABLE dead_letter_redrive_items (
    redrive_id     uuid        NOT NULL REFERENCES dead_letter_redrives ON DELETE CASCADE,
    dead_letter_id uuid        NOT NULL,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    redriven       boolean     NOT NULL,
    -- That of the record that was sent. A letter with it that names this one has
    -- failed again.
    replay_count   integer     NOT NULL,
    problem        text        NOT NULL DEFAULT '', -- why it was refused
    PRIMARY KEY (redrive_id, dead_letter_id)
);

CREATE INDEX dead_letters_redrive_of ON dead_letters (redrive_of) WHERE redrive_of IS NOT NULL;

-- An action belongs to a letter, to a redrive of many, or to both.
ALTER TABLE dead_letter_actions
    ALTER COLUMN dead_letter_id DROP NOT NULL,
    ADD COLUMN redrive_id uuid,
    ADD COLUMN detail     text NOT NULL DEFAULT '';
CREATE INDEX dead_letter_actions_redrive ON dead_letter_actions (redrive_id, id) WHERE redrive_id IS NOT NULL;

-- +goose Down
DELETE FROM dead_letter_actions WHERE dead_letter_id IS NULL;
ALTER TABLE dead_letter_actions
    DROP COLUMN redrive_id, DROP COLUMN detail,
    ALTER COLUMN dead_letter_id SET NOT NULL;
DROP INDEX dead_letters_redrive_of;
DROP TABLE dead_letter_redrive_items;
DROP TABLE dead_letter_redrives;
