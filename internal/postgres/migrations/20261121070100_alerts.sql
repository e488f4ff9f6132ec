-- +goose Up

-- alerts are what somebody was, or is to be, told about (internal/alerts). The row
-- is what keeps several processes, and one that restarts, from telling it twice.
CREATE TABLE alerts (
    id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    -- What it is about: one alert of a key is FIRING at a time.
    key             text        NOT NULL,
    kind            text        NOT NULL,
    status          text        NOT NULL DEFAULT 'FIRING' CHECK (status IN ('FIRING', 'RESOLVED')),
    summary         text        NOT NULL,
    details         jsonb       NOT NULL,
    since           timestamptz NOT NULL,
    opened_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    resolved_at     timestamptz,
    -- The status that the receiver was last told; NULL for none.
    sent_status     text,
    sent_at         timestamptz,
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_error      text
);

CREATE UNIQUE INDEX alerts_firing ON alerts (key) WHERE status = 'FIRING';
CREATE INDEX alerts_unsent ON alerts (next_attempt_at) WHERE sent_status IS DISTINCT FROM status;

-- +goose Down
DROP TABLE alerts;
