-- +goose Up

-- The resource classes that are known: those that a worker has ever announced, and
-- those that a coordinator found in its configuration. What names another class is
-- rejected. A row is never removed: the workers of a class may be away for a night.
CREATE TABLE resource_classes (
    name         text        PRIMARY KEY,
    first_seen   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The most of each that one worker of the class has ever had. slots is null when
    -- no worker has announced the class yet; cpu_millis and memory_bytes are also null
    -- when some worker did not count them.
    slots        integer,
    cpu_millis   bigint,
    memory_bytes bigint,
    gpus         integer
);

INSERT INTO resource_classes (name, slots, gpus)
SELECT resource_class, max(slots), 0 FROM workers GROUP BY resource_class;

-- +goose Down
DROP TABLE resource_classes;
