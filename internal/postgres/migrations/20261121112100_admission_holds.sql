-- +goose Up

-- A hold keeps what is queued from being admitted: everything, the executions of a
-- resource class, or those of a user, until somebody lifts it (internal/holds). The
-- admitters read the table in every round. Names that do not apply are empty.
CREATE TABLE admission_holds (
    scope          text        NOT NULL CHECK (scope IN ('all', 'class', 'user')),
    resource_class text        NOT NULL DEFAULT '',
    tenant         text        NOT NULL DEFAULT '',
    user_name      text        NOT NULL DEFAULT '',
    -- Who asked for it, and why.
    held_by        text        NOT NULL DEFAULT '',
    reason         text        NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, resource_class, tenant, user_name),
    CHECK ((scope = 'class') = (resource_class <> '')),
    CHECK ((scope = 'user') = (user_name <> '') AND (scope = 'user') = (tenant <> ''))
);

-- +goose Down
DROP TABLE admission_holds;
