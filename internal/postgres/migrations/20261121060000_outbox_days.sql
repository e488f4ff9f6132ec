-- +goose Up

-- outbox_events becomes a table of days, by created_at in UTC (internal/retention
-- makes the days that come and drops those that are old enough). What is there
-- becomes the first of them, in place and without copying: outbox_events_YYYYMMDD
-- is named for the last day that it holds.
-- +goose StatementBegin
DO $$
DECLARE
    -- The clock may have been ahead when a row was written.
    first date := (SELECT greatest((now() AT TIME ZONE 'UTC')::date, (max(created_at) AT TIME ZONE 'UTC')::date) FROM outbox_events);
    day   date := first;
    part  text := 'outbox_events_' || to_char(first, 'YYYYMMDD');
BEGIN
    EXECUTE format('ALTER TABLE outbox_events RENAME TO %I', part);
    EXECUTE format('ALTER INDEX outbox_events_pkey RENAME TO %I', part || '_pkey');
    EXECUTE format('ALTER INDEX outbox_events_open RENAME TO %I', part || '_open');
    EXECUTE format('ALTER INDEX outbox_events_blocking RENAME TO %I', part || '_blocking');

    EXECUTE format('CREATE TABLE outbox_events (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY RANGE (created_at)', part);
    ALTER TABLE outbox_events ADD PRIMARY KEY (seq, created_at);
    -- The relay reads each of its shards in order through this index, which holds
    -- open rows only, however many published ones there are.
    CREATE INDEX outbox_events_open ON outbox_events (shard, seq) WHERE status = 'PENDING';
    -- Rows that hold up their aggregate: as good as always empty.
    CREATE INDEX outbox_events_blocking ON outbox_events (shard, aggregate_type, aggregate_id)
        WHERE attempts > 0 AND status IN ('PENDING', 'FAILED');
    ALTER SEQUENCE outbox_events_seq OWNED BY outbox_events.seq;

    EXECUTE format('ALTER TABLE outbox_events ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', part, (first + 1) || ' 00:00:00+00');
    FOR n IN 1..7 LOOP
        day := first + n;
        part := 'outbox_events_' || to_char(day, 'YYYYMMDD');
        -- Every row is updated once, so autovacuum should come by number of rows and
        -- not by share of a table that keeps a day of published ones.
        EXECUTE format('CREATE TABLE %I PARTITION OF outbox_events FOR VALUES FROM (%L) TO (%L) WITH (
            autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
            autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
            autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)',
            part, day || ' 00:00:00+00', (day + 1) || ' 00:00:00+00');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Where rows go when nobody has made their day in time. They are moved to it later.
CREATE TABLE outbox_events_default PARTITION OF outbox_events DEFAULT WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000
);

-- +goose Down
ALTER TABLE outbox_events RENAME TO outbox_events_days;
CREATE TABLE outbox_events (LIKE outbox_events_days INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000
);
INSERT INTO outbox_events SELECT * FROM outbox_events_days;
ALTER SEQUENCE outbox_events_seq OWNED BY outbox_events.seq;
DROP TABLE outbox_events_days;
ALTER TABLE outbox_events ADD PRIMARY KEY (seq, created_at);
CREATE INDEX outbox_events_open ON outbox_events (shard, seq) WHERE status = 'PENDING';
CREATE INDEX outbox_events_blocking ON outbox_events (shard, aggregate_type, aggregate_id)
    WHERE attempts > 0 AND status IN ('PENDING', 'FAILED');
