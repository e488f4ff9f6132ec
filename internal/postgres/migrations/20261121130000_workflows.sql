-- +millrace needs 20261121126000
-- +goose Up
-- Workflows: definitions, instances, their journal, jobs, timers, user tasks and signals.
-- What an instance needs to go on is one row of wf_instances; all that happened to it is
-- wf_journal, one row for each input that changed something.

CREATE TABLE wf_definitions (
    id          text COLLATE "C" NOT NULL,
    version     integer NOT NULL CHECK (version > 0),
    -- workflow: written in JSON; saga: defined by a Go program.
    kind        text NOT NULL CHECK (kind IN ('workflow', 'saga')),
    name        text NOT NULL,
    description text NOT NULL DEFAULT '',
    -- The text as it was uploaded, whose order of members counts.
    document    text NOT NULL,
    -- SHA-256 of the text without insignificant space: the same again is no new version.
    digest      bytea NOT NULL,
    uploaded_by text NOT NULL DEFAULT '',
    uploaded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (id, version)
);

CREATE TABLE wf_instances (
    id                 uuid PRIMARY KEY,
    kind               text NOT NULL DEFAULT 'workflow',
    definition_id      text COLLATE "C" NOT NULL,
    definition_version integer NOT NULL,
    status             text NOT NULL,
    -- Version counts the inputs that changed something. lifecycle_version and saga_version
    -- count the events of the instance on flow-lifecycle-out and on saga_events.
    version            bigint NOT NULL,
    lifecycle_version  bigint NOT NULL DEFAULT 0,
    saga_version       bigint NOT NULL DEFAULT 0,
    business_key       text COLLATE "C",
    tenant             text COLLATE "C" NOT NULL DEFAULT '',
    user_id            text COLLATE "C" NOT NULL DEFAULT '',
    -- 1 (first) to 5, inherited by jobs.
    priority           smallint NOT NULL DEFAULT 3,
    variables          json NOT NULL,
    state              json NOT NULL,
    failure_reason     text,
    -- The status while it is one that somebody may have to look at (all but ACTIVE, WAITING
    -- and COMPLETED), else null: what lists by such a status read. An index on status itself
    -- would cost every instance an entry in every index when it ends.
    trouble            text,
    -- What waits for this instance to end: an attempt at an activity of another instance, or
    -- an execution. Depth counts the instances above it.
    parent_instance_id uuid,
    parent_activity    integer,
    parent_attempt     integer,
    depth              smallint NOT NULL DEFAULT 0,
    execution_id       uuid,
    -- The instance whose end started this one, and the one its end started.
    previous_instance_id uuid,
    next_instance_id   uuid,
    correlation_id     text,
    started_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    ended_at           timestamptz
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX wf_instances_started ON wf_instances (started_at DESC, id DESC);
CREATE INDEX wf_instances_definition ON wf_instances (definition_id, started_at DESC, id DESC);
CREATE INDEX wf_instances_business_key ON wf_instances (business_key) WHERE business_key IS NOT NULL;
CREATE INDEX wf_instances_trouble ON wf_instances (trouble, started_at DESC, id DESC) WHERE trouble IS NOT NULL;
CREATE INDEX wf_instances_parent ON wf_instances (parent_instance_id, parent_activity) WHERE parent_instance_id IS NOT NULL;
CREATE INDEX wf_instances_execution ON wf_instances (execution_id) WHERE execution_id IS NOT NULL;

-- Only appended to.
CREATE TABLE wf_journal (
    instance_id uuid NOT NULL,
    version     bigint NOT NULL,
    at          timestamptz NOT NULL,
    input       text NOT NULL,
    actor       text NOT NULL DEFAULT '',
    entries     json NOT NULL,
    PRIMARY KEY (instance_id, version)
);

-- The id of a job is made from its instance's and its activity's number (jobs.ID), so it
-- is found without an index by instance.
CREATE TABLE jobs (
    id                uuid PRIMARY KEY,
    instance_id       uuid NOT NULL,
    -- The activity of the instance that it is, and the step.
    activity          integer NOT NULL,
    step              integer NOT NULL,
    step_id           text COLLATE "C" NOT NULL,
    job_type          text COLLATE "C" NOT NULL,
    status            text NOT NULL DEFAULT 'UNLOCKED'
                      CHECK (status IN ('UNLOCKED', 'LOCKED', 'COMPLETED', 'FAILED', 'CANCELLED')),
    priority          smallint NOT NULL DEFAULT 3 CHECK (priority BETWEEN 1 AND 5),
    -- Set while its instance is suspended: it is not claimed.
    on_hold           boolean NOT NULL DEFAULT false,
    -- Set when it was claimed under a limit of its type, and counts towards that.
    limited           boolean NOT NULL DEFAULT false,
    -- Not claimed before.
    run_at            timestamptz NOT NULL,
    -- The attempt that is open or next, from 1, and what is left of the retries.
    attempt           integer NOT NULL DEFAULT 1,
    retries_remaining integer NOT NULL,
    -- Rises with every lease: the fencing token. Expired counts the leases that ran out
    -- in the present attempt.
    token             bigint NOT NULL DEFAULT 0,
    expired           integer NOT NULL DEFAULT 0,
    -- Who holds it, or held it last.
    worker_id         text,
    locked_at         timestamptz,
    -- When the lease ends; null while a record of it is not known to be in Kafka, so that
    -- its lease has not begun.
    lock_expires_at   timestamptz,
    lease_ms          integer,
    -- What it gets when that is not the variables of the instance.
    input             json,
    -- The row of the outbox that dispatches it, when it goes over Kafka.
    dispatch_id       uuid,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at       timestamptz
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
-- What can be claimed, and what is held: both shrink as jobs are finished.
CREATE INDEX jobs_claimable ON jobs (job_type, priority, run_at, id) WHERE status = 'UNLOCKED' AND NOT on_hold;
CREATE INDEX jobs_leases ON jobs (lock_expires_at) WHERE status = 'LOCKED';
-- Only jobs of limited types, and only jobs on their way to Kafka, are in these.
CREATE INDEX jobs_limited ON jobs (job_type) WHERE status = 'LOCKED' AND limited;
CREATE INDEX jobs_dispatched ON jobs (dispatch_id) WHERE status = 'LOCKED' AND lock_expires_at IS NULL;

CREATE TABLE wf_job_types (
    job_type    text COLLATE "C" PRIMARY KEY,
    -- How many jobs of the type may be held at once, and how many claimed per second (with
    -- so many at once); null: no limit.
    max_running integer CHECK (max_running > 0),
    rate        double precision CHECK (rate > 0),
    burst       integer CHECK (burst > 0),
    -- What was left of the burst when it was last looked at.
    tokens      double precision,
    refilled_at timestamptz,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_by  text NOT NULL DEFAULT '',
    CHECK (max_running IS NOT NULL OR rate IS NOT NULL),
    CHECK ((rate IS NULL) = (burst IS NULL))
);

-- What is due: timers of instances, and inputs that the engine owes to an instance since a
-- transaction that must not lock it (start, child, cancel).
CREATE TABLE wf_timers (
    instance_id uuid NOT NULL,
    step        integer NOT NULL,
    kind        text NOT NULL,
    index       integer NOT NULL,
    due_at      timestamptz NOT NULL,
    PRIMARY KEY (instance_id, step, kind, index)
);
CREATE INDEX wf_timers_due ON wf_timers (due_at);

CREATE TABLE wf_user_tasks (
    instance_id uuid NOT NULL,
    activity    integer NOT NULL,
    step        integer NOT NULL,
    step_id     text COLLATE "C" NOT NULL,
    name        text NOT NULL,
    label       text NOT NULL DEFAULT '',
    status      text NOT NULL DEFAULT 'OPEN' CHECK (status IN ('OPEN', 'CLAIMED', 'COMPLETED', 'CANCELLED')),
    assignee    text,
    groups      text[] NOT NULL DEFAULT '{}',
    due_at      timestamptz,
    input       json,
    created_at  timestamptz NOT NULL,
    claimed_at  timestamptz,
    finished_at timestamptz,
    finished_by text,
    PRIMARY KEY (instance_id, activity)
);
CREATE INDEX wf_user_tasks_open ON wf_user_tasks (created_at, instance_id, activity) WHERE status IN ('OPEN', 'CLAIMED');
CREATE INDEX wf_user_tasks_assignee ON wf_user_tasks (assignee, created_at) WHERE status IN ('OPEN', 'CLAIMED');

-- Steps that wait for a signal by its correlation key, and signals that came before them.
CREATE TABLE wf_waits (
    signal          text COLLATE "C" NOT NULL,
    correlation_key text COLLATE "C" NOT NULL,
    instance_id     uuid NOT NULL,
    activity        integer NOT NULL,
    PRIMARY KEY (signal, correlation_key, instance_id, activity)
);
CREATE INDEX wf_waits_instance ON wf_waits (instance_id);
CREATE TABLE wf_signals (
    id              uuid PRIMARY KEY,
    signal          text COLLATE "C" NOT NULL,
    correlation_key text COLLATE "C" NOT NULL,
    variables       json,
    actor           text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Until when it is kept, or remembered once it was delivered.
    expires_at      timestamptz NOT NULL,
    -- Who took it; null while it waits for somebody.
    instances       uuid[]
);
CREATE INDEX wf_signals_key ON wf_signals (signal, correlation_key, created_at) WHERE instances IS NULL;
CREATE INDEX wf_signals_expiry ON wf_signals (expires_at);

-- The audit log, read off the journal.
CREATE VIEW audit_log AS
SELECT j.at, coalesce(nullif(e.entry->>'actor', ''), nullif(j.actor, ''), 'engine') AS actor, e.entry->>'kind' AS kind,
    j.instance_id::text AS instance_id, e.entry::jsonb - 'kind' - 'actor' AS detail
FROM wf_journal j, LATERAL json_array_elements(j.entries) AS e(entry)
UNION ALL
SELECT d.uploaded_at, coalesce(nullif(d.uploaded_by, ''), 'engine'), 'definition-uploaded', NULL,
    jsonb_build_object('definition_id', d.id, 'version', d.version, 'kind', d.kind)
FROM wf_definitions d;

-- What a participant of sagas did, or refuses to do: a command is applied once, and not
-- after its compensation. The commands themselves need no table: their ids are made from
-- the instance and the number of the step.
CREATE TABLE saga_participations (
    participant text COLLATE "C" NOT NULL,
    command_id  uuid NOT NULL,
    saga_id     uuid NOT NULL,
    -- done and refused stay; what failed is attempted again by a later issue.
    outcome     text NOT NULL CHECK (outcome IN ('done', 'failed', 'refused')),
    issue       bigint NOT NULL,
    failure     json,
    output      json,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (participant, command_id)
);
-- Participations go with their saga, once its retention is over.
CREATE INDEX saga_participations_saga ON saga_participations (saga_id);

-- +goose Down
DROP VIEW audit_log;
DROP TABLE saga_participations, wf_signals, wf_waits, wf_user_tasks, wf_timers, wf_job_types, jobs, wf_journal, wf_instances, wf_definitions;
