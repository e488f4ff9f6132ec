-- +goose Up

-- An execution whose concurrency key is not free waits behind a gate: it is in no
-- index of what may be admitted, so that however many of them wait, they cost the
-- others nothing. The admitter shuts the gate when it finds the key taken, and
-- opens that of the key's next execution when a release says that one has ended.
ALTER TABLE executions ADD COLUMN gated boolean NOT NULL DEFAULT false;

DROP INDEX executions_queued;
CREATE INDEX executions_queued ON executions (resource_class, rank, id) WHERE state = 'QUEUED' AND NOT gated;

-- A row per execution with a concurrency key that has ended, written in the
-- transaction that ended it, gone when an admitter has looked at the key.
CREATE TABLE concurrency_releases (
    tenant          text NOT NULL,
    concurrency_key text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- +goose Down
DROP TABLE concurrency_releases;
DROP INDEX executions_queued;
CREATE INDEX executions_queued ON executions (resource_class, rank, id) WHERE state = 'QUEUED';
ALTER TABLE executions DROP COLUMN gated;
