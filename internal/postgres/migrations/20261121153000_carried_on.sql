-- +millrace needs 20261121126000
-- +goose Up

-- The attempt with which the work began that the current one carries on; 0 in rows of
-- earlier versions stands for the current attempt. setback says why the attempt before
-- came to nothing.
ALTER TABLE executions
    ADD COLUMN first_attempt integer NOT NULL DEFAULT 0,
    ADD COLUMN setback       jsonb;

-- +goose Down
ALTER TABLE executions
    DROP COLUMN setback,
    DROP COLUMN first_attempt;
