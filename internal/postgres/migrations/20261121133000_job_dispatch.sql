-- +millrace needs 20261121126000
-- +goose Up
-- Jobs that reach workers over Kafka are rows of the outbox, of aggregate type 'job', found
-- by jobs.dispatch_id through an index that is made without locking the outbox (programs,
-- in concurrently.go). What waits to be published, under the name and with the columns by which operators of
-- workflow.v1 know it. Empty while jobs are polled.
CREATE VIEW dispatch_outbox AS
    SELECT o.id, j.id AS job_id, j.instance_id, j.job_type, o.payload, o.created_at
    FROM jobs j
    JOIN outbox_events o ON o.id = j.dispatch_id AND o.aggregate_type = 'job'
        AND o.created_at >= j.locked_at - interval '1 hour' AND o.created_at < j.locked_at + interval '1 day'
    WHERE j.status = 'LOCKED' AND j.lock_expires_at IS NULL AND o.status = 'PENDING';

-- +goose Down
DROP VIEW dispatch_outbox;
