-- +millrace needs 20261121126000
-- +goose Up

-- execution_pods is what has become of the pods that executions run in, as the workers
-- tell: one row per pod, written with the events that tell of it, under the row lock of
-- its execution. It goes with its execution.
CREATE TABLE execution_pods (
    execution_id  uuid        NOT NULL,
    uid           text        COLLATE "C" NOT NULL,
    -- The attempt with which the work began that the pod runs.
    first_attempt integer     NOT NULL,
    namespace     text        NOT NULL,
    name          text        NOT NULL,
    -- The last phase of pods.Phases that was told, and when the pod came to it.
    phase         text        NOT NULL,
    phase_at      timestamptz NOT NULL,
    node          text        NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL,
    -- Standing until it is told that the pod is deleted. It is apart from the phase so
    -- that other changes of that leave the index alone.
    standing      boolean     NOT NULL,
    PRIMARY KEY (execution_id, uid)
) WITH (fillfactor = 80);

CREATE INDEX execution_pods_standing ON execution_pods (uid) WHERE standing;

-- +goose Down
DROP TABLE execution_pods;
