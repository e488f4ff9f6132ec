-- +goose Up

-- What runs where, from the pod events of executions, and how sagas stand, from saga
-- events. Columns *_version hold the version of the event that the group of columns
-- before them comes from; see execution_views.
CREATE TABLE pod_views (
    id              text        COLLATE "C" PRIMARY KEY,
    execution_id    text        COLLATE "C",
    namespace       text,
    name            text,
    attempt         integer,
    phase           text        COLLATE "C",
    node            text,
    reason          text,
    message         text,
    exit_code       integer,
    phase_version   bigint      NOT NULL DEFAULT 0,
    created_time    timestamptz,
    scheduled_time  timestamptz,
    started_time    timestamptz,
    finished_time   timestamptz,
    deleted_time    timestamptz,
    version         bigint      NOT NULL DEFAULT 0,
    history_from    timestamptz,
    events_future   boolean     NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX pod_views_by_execution ON pod_views (execution_id, id);
CREATE INDEX pod_views_newest ON pod_views (created_time DESC, id DESC);

CREATE TABLE saga_views (
    id              text        COLLATE "C" PRIMARY KEY,
    name            text        COLLATE "C",
    business_key    text        COLLATE "C",
    status          text        COLLATE "C",
    reason          text,
    message         text,
    status_version  bigint      NOT NULL DEFAULT 0,
    step            text,
    step_version    bigint      NOT NULL DEFAULT 0,
    -- One entry per step: {"<step>": {"at": <version>, "value": {...}}}.
    steps           jsonb       NOT NULL DEFAULT '{}',
    started_time    timestamptz,
    finished_time   timestamptz,
    finished_version bigint     NOT NULL DEFAULT 0,
    version         bigint      NOT NULL DEFAULT 0,
    history_from    timestamptz,
    events_future   boolean     NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX saga_views_newest ON saga_views (started_time DESC, id DESC);
CREATE INDEX saga_views_by_status ON saga_views (status, started_time DESC, id DESC);

-- merge_entries keeps, of two objects whose entries say in "at" which event they come
-- from, the later entry under each name.
-- +goose StatementBegin
CREATE FUNCTION merge_entries(a jsonb, b jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_object_agg(name, entry), '{}') FROM (
        SELECT DISTINCT ON (name) name, entry
        FROM (SELECT * FROM jsonb_each(a) UNION ALL SELECT * FROM jsonb_each(b)) AS both_sides (name, entry)
        ORDER BY name, (entry->>'at')::bigint DESC, entry DESC) AS latest
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION merge_entries(jsonb, jsonb);
DROP TABLE saga_views;
DROP TABLE pod_views;
