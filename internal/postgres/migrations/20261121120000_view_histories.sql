-- +goose Up

-- What every read model has (package projections): when the history of the row begins,
-- which says whether a rebuild can see all of it; whether one of its events claimed to
-- come from the future; and when the row was made and last changed, which depends on
-- arrival and is left out of comparisons.
ALTER TABLE execution_views
    ADD COLUMN history_from  timestamptz,
    ADD COLUMN events_future boolean     NOT NULL DEFAULT false,
    ADD COLUMN created_at    timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN updated_at    timestamptz NOT NULL DEFAULT now();

UPDATE execution_views SET history_from = requested_at;

-- +goose Down
ALTER TABLE execution_views
    DROP COLUMN history_from, DROP COLUMN events_future, DROP COLUMN created_at, DROP COLUMN updated_at;
