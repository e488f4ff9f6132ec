-- +goose Up

-- What a worker has beside its slots. Null in a column means that the worker does
-- not count it: whatever an execution asks for there fits.
ALTER TABLE workers
    ADD COLUMN cpu_millis   bigint,
    ADD COLUMN memory_bytes bigint,
    ADD COLUMN gpus         integer NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE workers
    DROP COLUMN gpus,
    DROP COLUMN memory_bytes,
    DROP COLUMN cpu_millis;
