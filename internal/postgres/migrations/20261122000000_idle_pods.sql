-- +millrace needs 20261121153100
-- +goose Up

-- idle: the pod is known to have done nothing of the work, so another one may take its
-- place in the same run. NULL: it is not known.
ALTER TABLE execution_pods ADD COLUMN idle boolean;

-- +goose Down
ALTER TABLE execution_pods DROP COLUMN idle;
