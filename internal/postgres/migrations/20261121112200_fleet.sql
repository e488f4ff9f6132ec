-- +goose Up

-- Since when a worker has been announcing itself without a gap.
ALTER TABLE workers ADD COLUMN since timestamptz NOT NULL DEFAULT clock_timestamp();

-- How many executions of a class were admitted per second lately, while any waited:
-- what estimates are made from. Its admitter writes it.
CREATE TABLE admission_rates (
    resource_class text             PRIMARY KEY,
    per_second     double precision NOT NULL,
    updated_at     timestamptz      NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Who is under the same key of a limit.
CREATE INDEX admission_lanes_by_key ON admission_lanes USING gin (keys jsonb_path_ops) WHERE keys <> '[]';

-- +goose Down
DROP INDEX admission_lanes_by_key;
DROP TABLE admission_rates;
ALTER TABLE workers DROP COLUMN since;
