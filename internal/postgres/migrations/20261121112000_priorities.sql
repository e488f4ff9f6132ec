-- +goose Up

-- The priority of an execution may change while it waits: the view keeps the one of
-- the latest event that tells of it.
ALTER TABLE execution_views ADD COLUMN priority_version bigint NOT NULL DEFAULT 0;

-- What waits, by class and priority, in the order in which it came: whoever asks how
-- long a queue is counts here, and no further than is worth knowing.
CREATE INDEX executions_waiting ON executions (resource_class, (request ->> 'priority'), rank)
    WHERE state = 'QUEUED';

-- +goose Down
DROP INDEX executions_waiting;
ALTER TABLE execution_views DROP COLUMN priority_version;
