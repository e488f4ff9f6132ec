-- +goose Up

-- replay_sessions are replays (internal/replay): what is emitted again, to whom, how
-- fast, and how far it has come. The cursor moves after its records are published, in
-- a transaction that the keeper's lease fences.
CREATE TABLE replay_sessions (
    id              uuid             PRIMARY KEY,
    state           text             NOT NULL DEFAULT 'PENDING'
        CONSTRAINT replay_sessions_known_state CHECK (state IN ('PENDING', 'RUNNING', 'PAUSED', 'STOPPED', 'DONE', 'CANCELLED')),
    source          text             NOT NULL CONSTRAINT replay_sessions_known_source CHECK (source IN ('event_log', 'kafka')),
    filter          jsonb            NOT NULL,
    -- The name at the broker.
    target_topic    text             NOT NULL,
    target_consumer text             NOT NULL DEFAULT '', -- empty: every consumer of the topic that opts in
    max_events      bigint,          -- NULL: all
    rate            double precision, -- events per second; NULL: as fast as it goes
    forced          boolean          NOT NULL,
    actor           text             NOT NULL,
    reason          text             NOT NULL,
    -- A call that is repeated under its key leads to the same session.
    idempotency_key text,
    request_hash    bytea,
    -- By partition, where it goes on and where it ends.
    cursor          jsonb            NOT NULL,
    -- How many events it is about; NULL while they are not counted. Not exact: at most
    -- so many.
    total           bigint,
    total_exact     boolean          NOT NULL DEFAULT true,
    published       bigint           NOT NULL DEFAULT 0,
    -- What the filter does not choose, of a source that cannot choose by itself.
    skipped         bigint           NOT NULL DEFAULT 0,
    -- What the broker did not take, and the first of it.
    refused         bigint           NOT NULL DEFAULT 0,
    refusals        jsonb            NOT NULL DEFAULT '[]',
    -- Events per second of late; 0 while nothing is known.
    speed           double precision NOT NULL DEFAULT 0,
    note            text             NOT NULL DEFAULT '', -- why it stopped, or what it waits for
    created_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    started_at      timestamptz,
    finished_at     timestamptz
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX replay_sessions_idempotency_key ON replay_sessions (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX replay_sessions_due    ON replay_sessions (created_at, id) WHERE state IN ('PENDING', 'RUNNING');
CREATE INDEX replay_sessions_newest ON replay_sessions (created_at DESC, id DESC);

-- replay_actions is who did what to a session, and why.
CREATE TABLE replay_actions (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id uuid        NOT NULL REFERENCES replay_sessions ON DELETE CASCADE,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text        NOT NULL,
    action     text        NOT NULL CHECK (action IN ('create', 'pause', 'resume', 'cancel', 'rate')),
    reason     text        NOT NULL,
    detail     text        NOT NULL DEFAULT ''
);
CREATE INDEX replay_actions_session ON replay_actions (session_id, id);

-- Whether a consumer acts on replayed events. NULL: it has not said so yet, because
-- no process of this version has registered it.
ALTER TABLE consumers ADD COLUMN replay boolean;

-- +goose Down
ALTER TABLE consumers DROP COLUMN replay;
DROP TABLE replay_actions;
DROP TABLE replay_sessions;
