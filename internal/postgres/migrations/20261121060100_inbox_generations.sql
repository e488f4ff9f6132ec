-- +goose Up

-- processed_events becomes a table of generations, so that what is out of the
-- window is dropped as a whole. New rows go to the newest generation; an event is
-- known when any generation has it. A new one begins, in a row here, only while no
-- transaction that wrote to processed_events is open: so of two transactions that
-- insert the same key either both use the same generation, whose primary key makes
-- one wait for the other, or the second sees what the first has committed. See
-- internal/inbox and internal/retention.
CREATE TABLE processed_generations (
    number   bigint      PRIMARY KEY,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO processed_generations (number) VALUES (1);

ALTER TABLE processed_events RENAME TO processed_events_1;
ALTER INDEX processed_events_pkey RENAME TO processed_events_1_pkey;
ALTER TABLE processed_events_1 ADD COLUMN generation bigint NOT NULL DEFAULT 1;
ALTER TABLE processed_events_1 ALTER COLUMN generation DROP DEFAULT;

-- No key of its own: it would have to contain the generation, and then mean
-- nothing. Each partition has the primary key (consumer, source, event_id, session).
CREATE TABLE processed_events (LIKE processed_events_1 INCLUDING DEFAULTS) PARTITION BY LIST (generation);
ALTER TABLE processed_events ATTACH PARTITION processed_events_1 FOR VALUES IN (1);

-- +goose Down
ALTER TABLE processed_events RENAME TO processed_events_generations;
CREATE TABLE processed_events (LIKE processed_events_generations INCLUDING DEFAULTS);
INSERT INTO processed_events
    SELECT DISTINCT ON (consumer, source, event_id, session) *
    FROM processed_events_generations ORDER BY consumer, source, event_id, session, generation;
DROP TABLE processed_events_generations;
DROP TABLE processed_generations;
ALTER TABLE processed_events DROP COLUMN generation;
ALTER TABLE processed_events ADD PRIMARY KEY (consumer, source, event_id, session);
