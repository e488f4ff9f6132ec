-- +goose Up

-- The data index (projections): workflow instances and their tasks, as their lifecycle
-- events tell of them. Every column *_mark holds which event the value beside it comes
-- from, in an order that all events of a row have: one byte of rank, eight of time or
-- version, seven of identity. A value is replaced only by that of an event with a
-- greater mark (a lesser one where the earliest event decides), so any order and any
-- repetition of the events gives the same row. NULL: no event has spoken of it.
--
-- A status is derived from three registers: the last state that is not terminal, where
-- being created ranks below everything else; the last terminal state; and the last
-- event that reopened the row, which is all that leads out of a terminal state.

-- A row without a name and without a status is a placeholder: events of its tasks have
-- come, but none of the workflow itself.
CREATE TABLE workflow_instances (
    id                   text        COLLATE "C" PRIMARY KEY,
    namespace            text COLLATE "C",
    namespace_mark       uuid,
    name                 text COLLATE "C",
    name_mark            uuid,
    version              text COLLATE "C",
    version_mark         uuid,
    -- Derived: see above. NULL as long as no event has told of a status.
    status               text        COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN terminal_mark IS NOT NULL AND (reopened_mark IS NULL OR terminal_mark > reopened_mark)
             THEN terminal_status ELSE active_status END) STORED,
    active_status        text,
    active_mark          uuid,
    terminal_status      text,
    terminal_mark        uuid,
    reopened_mark        uuid,
    start                timestamptz,
    start_mark           uuid,
    "end"                timestamptz,
    end_mark             uuid,
    last_update          timestamptz,
    last_update_mark     uuid,
    input                jsonb,
    input_mark           uuid,
    output               jsonb,
    output_mark          uuid,
    error_type           text,
    error_type_mark      uuid,
    error_title          text,
    error_title_mark     uuid,
    error_detail         text,
    error_detail_mark    uuid,
    error_status         integer,
    error_status_mark    uuid,
    error_instance       text,
    error_instance_mark  uuid,
    -- The time that the newest event claims for itself.
    last_event_time      timestamptz,
    history_from         timestamptz,
    events_future        boolean     NOT NULL DEFAULT false,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 80);

-- A task is a place in a workflow, in a turn of the loop around it and an attempt; the
-- last two are 0 where the engine does not tell them apart.
CREATE TABLE task_instances (
    instance_id          text        COLLATE "C" NOT NULL,
    task_position        text        COLLATE "C" NOT NULL,
    iteration            integer     NOT NULL DEFAULT 0,
    attempt              integer     NOT NULL DEFAULT 0,
    task_execution_id    text COLLATE "C",
    task_execution_id_mark uuid,
    task_name            text COLLATE "C",
    task_name_mark       uuid,
    -- Derived: see above. NULL as long as no event has told of a status.
    status               text        COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN terminal_mark IS NOT NULL AND (reopened_mark IS NULL OR terminal_mark > reopened_mark)
             THEN terminal_status ELSE active_status END) STORED,
    active_status        text,
    active_mark          uuid,
    terminal_status      text,
    terminal_mark        uuid,
    reopened_mark        uuid,
    start                timestamptz,
    start_mark           uuid,
    "end"                timestamptz,
    end_mark             uuid,
    last_update          timestamptz,
    last_update_mark     uuid,
    input                jsonb,
    input_mark           uuid,
    output               jsonb,
    output_mark          uuid,
    error_type           text,
    error_type_mark      uuid,
    error_title          text,
    error_title_mark     uuid,
    error_detail         text,
    error_detail_mark    uuid,
    error_status         integer,
    error_status_mark    uuid,
    error_instance       text,
    error_instance_mark  uuid,
    -- The time that the newest event claims for itself.
    last_event_time      timestamptz,
    history_from         timestamptz,
    events_future        boolean     NOT NULL DEFAULT false,
    created_at           timestamptz NOT NULL DEFAULT now(),
    updated_at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (instance_id, task_position, iteration, attempt)
) WITH (fillfactor = 80);

-- +goose Down
DROP TABLE task_instances;
DROP TABLE workflow_instances;
