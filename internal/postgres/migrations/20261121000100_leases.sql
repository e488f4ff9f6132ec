-- +goose Up

-- leases says who may do what only one may do at a time (internal/lease). Rows
-- stay when a lease ends, so that its token goes on rising.
CREATE TABLE leases (
    name        text        PRIMARY KEY,
    owner       text        NOT NULL,
    token       bigint      NOT NULL,
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    -- Not for uniqueness, which the primary key gives, but to make token a key
    -- column: a takeover changes it and so conflicts with FOR KEY SHARE, under which
    -- a holder's transactions verify their token, while a renewal changes no key
    -- column and passes them.
    UNIQUE (name, token)
) WITH (fillfactor = 50);

-- lease_members are those that share the shards of a kind.
CREATE TABLE lease_members (
    kind       text        NOT NULL,
    member     text        NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (kind, member)
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE lease_members;
DROP TABLE leases;
