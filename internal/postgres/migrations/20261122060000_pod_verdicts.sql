-- +millrace needs 20261122050000
-- +goose Up

-- verdict: what the run has come to for which the pod is taken away, as noted before that:
-- {"outcome", "reason", "message", "retryable", "disrupted"}. NULL: nobody has decided.
ALTER TABLE execution_pods ADD COLUMN verdict jsonb;

-- +goose Down
ALTER TABLE execution_pods DROP COLUMN verdict;
