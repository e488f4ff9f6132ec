-- +millrace needs 20261121126000
-- +goose Up

-- schedules has one row per trigger of type schedule, written in the transactions that
-- change the trigger, and swept when it is due. A row of a trigger that is gone stays as
-- long as its firings do: its version goes on.
CREATE TABLE schedules (
    trigger_uid text        COLLATE "C" PRIMARY KEY,
    trigger_id  text        NOT NULL,
    revision    bigint      NOT NULL,
    -- The schedule as the trigger has it.
    spec        jsonb       NOT NULL,
    -- The next time that nobody has looked at, and when it is due, which is later by the
    -- jitter. Null when there is none: the trigger is disabled or gone, or no time is left.
    next_at     timestamptz,
    due_at      timestamptz,
    -- The latest time that has fired.
    last_at     timestamptz,
    -- Counts the events of the schedule, from 1.
    version     bigint      NOT NULL DEFAULT 0,
    -- How long a firing may wait, or the schedule go unseen, before that is an alert.
    alert_after interval    NOT NULL,
    -- When the trigger was deleted, or became another type.
    gone_at     timestamptz,
    CHECK ((next_at IS NULL) = (due_at IS NULL))
) WITH (fillfactor = 80);

CREATE INDEX schedules_due ON schedules (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_gone ON schedules (gone_at) WHERE gone_at IS NOT NULL;

-- schedule_firings has one row per time of a schedule that has come: due until it is known
-- what becomes of it, then the history. The key is what makes a time fire once.
CREATE TABLE schedule_firings (
    trigger_uid  text        COLLATE "C" NOT NULL,
    scheduled_at timestamptz NOT NULL,
    status       text        NOT NULL CHECK (status IN ('due', 'started', 'refused', 'skipped', 'missed')),
    due_at       timestamptz NOT NULL,
    fired_at     timestamptz NOT NULL,
    -- It was noticed too late to be on time.
    late         boolean     NOT NULL DEFAULT false,
    fired_by     text        NOT NULL DEFAULT '',
    -- The number of the attempt that somebody makes, or made last; nobody else's word counts.
    attempt      integer     NOT NULL DEFAULT 0,
    -- From when on it may be taken from the table; null when it is settled.
    try_at       timestamptz,
    -- Why it was not started, or is not yet: {"code", "message", "hint"}, and since when.
    cause        jsonb,
    since        timestamptz,
    -- What was made.
    kind         text        NOT NULL DEFAULT '',
    target_id    text        NOT NULL DEFAULT '',
    -- The target is not known to have ended, and the schedule asks.
    running      boolean     NOT NULL DEFAULT false,
    settled_at   timestamptz,
    -- A row with status missed stands for several times, of which it is the last.
    missed_first timestamptz,
    missed_count integer,
    missed_more  boolean,
    PRIMARY KEY (trigger_uid, scheduled_at),
    CHECK ((status = 'due') = (try_at IS NOT NULL))
) WITH (fillfactor = 80);

CREATE INDEX schedule_firings_try ON schedule_firings (try_at) WHERE status = 'due';
CREATE INDEX schedule_firings_unended ON schedule_firings (trigger_uid, scheduled_at) WHERE status = 'due' OR running;
CREATE INDEX schedule_firings_settled ON schedule_firings (settled_at) WHERE settled_at IS NOT NULL;

-- +goose Down
DROP TABLE schedule_firings;
DROP TABLE schedules;
