-- +goose Up

-- projection_rebuilds (internal/rebuild) are the rebuilds of projections and the
-- comparisons of their tables with the history: what was asked for, how far it is,
-- what came out. A step of the work and the row are changed in one transaction.
CREATE TABLE projection_rebuilds (
    id          uuid        PRIMARY KEY,
    projection  text        NOT NULL COLLATE "C",
    mode        text        NOT NULL
        CONSTRAINT projection_rebuilds_known_mode CHECK (mode IN ('rebuild', 'verify')),
    source      text        NOT NULL
        CONSTRAINT projection_rebuilds_known_source CHECK (source IN ('event_log', 'kafka')),
    state       text        NOT NULL DEFAULT 'RUNNING'
        CONSTRAINT projection_rebuilds_known_state CHECK (state IN ('RUNNING', 'PAUSED', 'CANCELLING', 'CANCELLED', 'FAILED', 'DONE')),
    phase       text        NOT NULL DEFAULT 'preparing',
    -- How long the tables that were replaced are kept; 0: not at all.
    keep_old    interval    NOT NULL DEFAULT '0',
    -- When they are dropped; NULL: there are none.
    old_until   timestamptz,
    force       boolean     NOT NULL DEFAULT false,
    actor       text        NOT NULL,
    reason      text        NOT NULL DEFAULT '',
    -- The declaration by which the shadow is built.
    version     text        NOT NULL DEFAULT '',
    -- What of the history was passed, out of how much, as offsets, and the last rate.
    done        bigint      NOT NULL DEFAULT 0,
    total       bigint      NOT NULL DEFAULT 0,
    per_second  double precision NOT NULL DEFAULT 0,
    -- Records that could not be applied, and the first of them.
    skipped     bigint      NOT NULL DEFAULT 0,
    skipped_first text      NOT NULL DEFAULT '',
    -- Rows of the tables, when they were compared; those of them that were carried
    -- over because their history is older than the source.
    rows        bigint,
    rows_built  bigint,
    carried     bigint,
    horizon     timestamptz,
    -- What the comparison found; NULL: nothing was compared.
    missing     bigint,
    surplus     bigint,
    different   bigint,
    note        text        NOT NULL DEFAULT '', -- what it waits for, or why it failed
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz
);
-- One at a time: they share the name of the shadow.
CREATE UNIQUE INDEX projection_rebuilds_open ON projection_rebuilds (projection)
    WHERE state IN ('RUNNING', 'PAUSED', 'CANCELLING');
CREATE INDEX projection_rebuilds_newest ON projection_rebuilds (projection, created_at DESC, id DESC);
CREATE INDEX projection_rebuilds_old ON projection_rebuilds (old_until) WHERE old_until IS NOT NULL;

-- projection_rebuild_cursors say up to where the shadow holds each partition.
CREATE TABLE projection_rebuild_cursors (
    rebuild_id  uuid    NOT NULL REFERENCES projection_rebuilds ON DELETE CASCADE,
    topic_id    uuid    NOT NULL,
    partition   integer NOT NULL,
    first_offset bigint NOT NULL,
    next_offset bigint  NOT NULL,
    PRIMARY KEY (rebuild_id, topic_id, partition)
);

-- projection_differences are the first differences that a comparison found.
CREATE TABLE projection_differences (
    rebuild_id uuid    NOT NULL REFERENCES projection_rebuilds ON DELETE CASCADE,
    n          integer NOT NULL,
    table_name text    NOT NULL,
    kind       text    NOT NULL
        CONSTRAINT projection_differences_known_kind CHECK (kind IN ('missing', 'surplus', 'different')),
    key        jsonb   NOT NULL,
    -- {"<column>": {"table": <value>, "history": <value>}}; empty unless different.
    columns    jsonb   NOT NULL DEFAULT '{}',
    PRIMARY KEY (rebuild_id, n)
);

-- projection_builds say by which declaration the rows of a projection were built.
CREATE TABLE projection_builds (
    projection text        PRIMARY KEY COLLATE "C",
    version    text        NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    rebuild_id uuid
);

-- reached is up to where effects may be in the tables although the position is lower:
-- it was moved back, or a rebuild was ahead of it.
ALTER TABLE consumer_offsets ADD COLUMN reached bigint NOT NULL DEFAULT -1;

-- +goose Down
ALTER TABLE consumer_offsets DROP COLUMN reached;
-- +goose StatementBegin
DO $$
DECLARE
    leftover regclass;
BEGIN
    FOR leftover IN SELECT c.oid::regclass FROM pg_class c
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
          AND (c.relname LIKE '%\_\_rebuild' OR c.relname LIKE '%\_\_replaced')
    LOOP
        EXECUTE 'DROP TABLE ' || leftover;
    END LOOP;
END $$;
-- +goose StatementEnd
DROP TABLE projection_builds;
DROP TABLE projection_differences;
DROP TABLE projection_rebuild_cursors;
DROP TABLE projection_rebuilds;
