-- +millrace needs 20261121126000
-- +goose Up

-- What an instance was started by, as in the requests of executions; NULL for those that
-- were started over the API, or by other instances.
ALTER TABLE wf_instances ADD COLUMN origin json;

-- +goose Down
ALTER TABLE wf_instances DROP COLUMN origin;
