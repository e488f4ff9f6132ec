-- +goose Up

-- Who asked for what to be erased, and what became of it (internal/purge, ADR 0036).
-- Once it has ended nothing in here names a person: user_hash tells whether a given
-- user was meant.
CREATE TABLE purges (
    id          uuid        PRIMARY KEY,
    state       text        NOT NULL DEFAULT 'RUNNING'
        CONSTRAINT purges_known_state CHECK (state IN ('RUNNING', 'WAITING', 'DONE', 'CANCELLED')),
    tenant      text,       -- NULL: every tenant
    user_name   text,       -- NULL once it has ended
    user_hash   bytea       NOT NULL,
    -- Executions that have not ended are cancelled first.
    cancel      boolean     NOT NULL,
    actor       text        NOT NULL,
    reason      text        NOT NULL,
    -- Where it is: the step of the round, and how far the step is.
    step        text        NOT NULL DEFAULT 'executions',
    cursor      text        NOT NULL DEFAULT '',
    rounds      integer     NOT NULL DEFAULT 0,
    -- What the round has erased, and what it has found that cannot be erased yet.
    found       bigint      NOT NULL DEFAULT 0,
    waiting     jsonb       NOT NULL DEFAULT '{}',
    -- What was erased in all, by kind; and what waited at the end of the last round.
    erased      jsonb       NOT NULL DEFAULT '{}',
    left_over   jsonb       NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    next_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((user_name IS NULL) = (state IN ('DONE', 'CANCELLED')))
);
CREATE INDEX purges_due ON purges (next_at) WHERE state IN ('RUNNING', 'WAITING');
CREATE INDEX purges_newest ON purges (created_at DESC, id DESC);
-- Asked for again while it is under way it is the same purge.
CREATE UNIQUE INDEX purges_open ON purges (user_hash, coalesce(tenant, '')) WHERE state IN ('RUNNING', 'WAITING');

-- Executions that are gone for good. What still comes in about them, from topics that
-- are read again or a read model that is rebuilt, is erased again.
CREATE TABLE purged_executions (
    id        uuid        PRIMARY KEY,
    purged_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    purge     uuid        -- NULL: it was old enough
);
CREATE INDEX purged_executions_at ON purged_executions (purged_at, id);
CREATE INDEX purged_executions_purge ON purged_executions (purge, id) WHERE purge IS NOT NULL;

-- +goose Down
DROP TABLE purged_executions;
DROP TABLE purges;
