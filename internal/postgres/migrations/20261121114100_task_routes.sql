-- +goose Up

-- The topics (by their names at the broker) that a worker reads tasks from.
ALTER TABLE workers ADD COLUMN topics text[] NOT NULL DEFAULT '{}';

-- task_routes is where the tasks of each resource class go, by their names at the
-- broker, as the coordinator that admits the class has it in its configuration
-- (internal/routing). Nobody decides by it: it is what workers and people compare
-- their own settings with.
CREATE TABLE task_routes (
    resource_class text        PRIMARY KEY,
    topic          text        NOT NULL,
    coordinator    text        NOT NULL,
    -- When this coordinator took over the class with this route.
    recorded_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE task_routes;
ALTER TABLE workers DROP COLUMN topics;
