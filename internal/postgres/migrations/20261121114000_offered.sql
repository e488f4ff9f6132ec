-- +goose Up

-- A scheduled execution may be claimed from the table only after a worker has read
-- its task record and had no room for it: since then it is on offer to every worker
-- of its class. Until then it is on its way through the task topics, where something
-- may stand between the coordinator and the workers that is not to be bypassed.
ALTER TABLE executions ADD COLUMN offered_at timestamptz;

-- The records of what is scheduled may have been read before there was this column.
UPDATE executions SET offered_at = clock_timestamp() WHERE state = 'SCHEDULED';

DROP INDEX executions_scheduled;
CREATE INDEX executions_offered ON executions (resource_class, rank, id)
    WHERE state = 'SCHEDULED' AND offered_at IS NOT NULL;

-- +goose Down
DROP INDEX executions_offered;
CREATE INDEX executions_scheduled ON executions (resource_class, rank, id) WHERE state = 'SCHEDULED';
ALTER TABLE executions DROP COLUMN offered_at;
