-- +goose Up

-- execution_results are the values of executions that are too large for their rows
-- and events, which refer to them (internal/results). A row is there before anything
-- refers to it. kept_in says where the value is: 'postgres' is
-- execution_result_chunks, 'directory' a file of that id.
CREATE TABLE execution_results (
    id           uuid        PRIMARY KEY,
    execution_id uuid        NOT NULL,
    attempt      integer     NOT NULL,
    bytes        bigint      NOT NULL,
    sha256       bytea       NOT NULL,
    kept_in      text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX execution_results_execution ON execution_results (execution_id);

CREATE TABLE execution_result_chunks (
    result_id uuid    NOT NULL REFERENCES execution_results (id) ON DELETE CASCADE,
    index     integer NOT NULL,
    data      bytea   NOT NULL,
    PRIMARY KEY (result_id, index)
);

-- +goose Down
DROP TABLE execution_result_chunks;
DROP TABLE execution_results;
