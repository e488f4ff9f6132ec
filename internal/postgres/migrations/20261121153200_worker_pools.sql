-- +millrace needs 20261121126000
-- +goose Up

-- The room that executors of a worker have elsewhere for the class, as an array of
-- {"executor", "name", "known", "slots", "cpu_millis", "memory_bytes", "gpus"}; an amount
-- that is missing has no bound. Workers with the same pool share it.
ALTER TABLE workers ADD COLUMN pools jsonb NOT NULL DEFAULT '[]';

-- +goose Down
ALTER TABLE workers DROP COLUMN pools;
