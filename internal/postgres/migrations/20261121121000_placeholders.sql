-- +goose Up

-- Placeholders of the data index (projections.PlaceholderList): instances of which only
-- tasks are known, the oldest first. There are hardly ever any.
CREATE INDEX workflow_instances_placeholders ON workflow_instances (created_at, id)
    WHERE name IS NULL AND status IS NULL;

-- +goose Down
DROP INDEX workflow_instances_placeholders;
