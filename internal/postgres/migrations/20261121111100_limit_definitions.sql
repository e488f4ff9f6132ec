-- +goose Up

-- The limits as a coordinator last found them in its configuration, so that a change
-- is noticed, and coordinators that disagree.
CREATE TABLE limit_definitions (
    name        text        COLLATE "C" PRIMARY KEY,
    -- See limits.Definition, with the defaults filled in.
    definition  jsonb       NOT NULL,
    -- What it was until then; null where it is new.
    previous    jsonb,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    declared_by text        NOT NULL
);

-- +goose Down
DROP TABLE limit_definitions;
