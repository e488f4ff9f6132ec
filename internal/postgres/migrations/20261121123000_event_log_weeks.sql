-- +goose Up

-- event_log becomes a table of weeks, by the time of the event (internal/retention makes
-- the weeks that come and drops those that are old enough; ADR 0033). Topics are named
-- once, in a table of their own: that saves 45 bytes in each row and as many in each
-- entry of the primary key.
--
-- Every row that is there is copied: about 20 s for a million of them, and room for
-- them twice until the migration is over. The recorder waits; everything else goes on.

-- The topics that have been recorded. One that was made anew is another one: it counts
-- from 0 again.
CREATE TABLE event_log_topics (
    no             smallint    GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic          text        COLLATE "C" NOT NULL,
    topic_id       uuid        NOT NULL,
    -- Events before have been dropped; NULL: none have.
    dropped_before timestamptz,
    UNIQUE (topic_id, topic)
);

-- Where the log of each partition begins.
CREATE TABLE event_log_partitions (
    topic_no     smallint    NOT NULL REFERENCES event_log_topics,
    partition    integer     NOT NULL,
    first_offset bigint      NOT NULL,
    -- The record's time at first_offset.
    first_time   timestamptz NOT NULL,
    PRIMARY KEY (topic_no, partition)
);

ALTER TABLE event_log RENAME TO event_log_before;
ALTER INDEX event_log_pkey RENAME TO event_log_before_pkey;
ALTER INDEX event_log_subject RENAME TO event_log_before_subject;

-- The log itself. The columns of fixed length come first, so that nothing is lost to
-- alignment. The time of an event is a function of its record, so the primary key keeps
-- a record from being recorded twice although it has the time in it.
CREATE TABLE event_log (
    "offset"    bigint      NOT NULL,
    -- The event's own time, or the record's where the event has none.
    time        timestamptz NOT NULL,
    -- The record's time: the producer's or the broker's, as the topic keeps it.
    appended_at timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    sequence    bigint      NOT NULL DEFAULT 0,
    partition   integer     NOT NULL,
    topic_no    smallint    NOT NULL,
    key         bytea,
    -- A record that could not be decoded has no type, source, event_id.
    type        text        COLLATE "C",
    source      text        COLLATE "C",
    event_id    text        COLLATE "C",
    subject     text        COLLATE "C",
    -- Ordered, multi-valued, binary: see eventlog.EncodeHeaders.
    headers     bytea       NOT NULL,
    value       bytea,
    PRIMARY KEY (topic_no, partition, "offset", time)
) PARTITION BY RANGE (time);

-- The history of one aggregate, in order.
CREATE INDEX event_log_subject ON event_log (subject, sequence) WHERE subject IS NOT NULL;
-- The log as a whole, and the events of a type, by time.
CREATE INDEX event_log_time ON event_log (time);
CREATE INDEX event_log_type ON event_log (type, time) WHERE type IS NOT NULL;

-- Times that no week is made for: a producer may write what it likes.
CREATE TABLE event_log_default PARTITION OF event_log DEFAULT;

-- The weeks begin on Mondays, in UTC, and are named for them.
-- +goose StatementBegin
DO $$
DECLARE
    week timestamp := date_trunc('week', now() AT TIME ZONE 'UTC' - interval '90 days');
BEGIN
    WHILE week <= now() AT TIME ZONE 'UTC' + interval '14 days' LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF event_log FOR VALUES FROM (%L) TO (%L)',
            'event_log_' || to_char(week, 'YYYYMMDD'), week || '+00', week + interval '7 days' || '+00');
        week := week + interval '7 days';
    END LOOP;
END
$$;
-- +goose StatementEnd

INSERT INTO event_log_topics (topic, topic_id) SELECT DISTINCT topic, topic_id FROM event_log_before ORDER BY topic, topic_id;
INSERT INTO event_log_partitions (topic_no, partition, first_offset, first_time)
SELECT DISTINCT ON (no, partition) no, partition, "offset", appended_at
FROM event_log_before JOIN event_log_topics USING (topic, topic_id) ORDER BY no, partition, "offset";
INSERT INTO event_log ("offset", time, appended_at, recorded_at, sequence, partition, topic_no,
    key, type, source, event_id, subject, headers, value)
SELECT "offset", time, appended_at, recorded_at, sequence, partition, no, key, type, source, event_id, subject, headers, value
FROM event_log_before JOIN event_log_topics USING (topic, topic_id);
DROP TABLE event_log_before;
ANALYZE event_log;

-- +goose Down
CREATE TABLE event_log_before (
    topic       text        NOT NULL,
    topic_id    uuid        NOT NULL,
    partition   integer     NOT NULL,
    "offset"    bigint      NOT NULL,
    key         bytea,
    type        text,
    source      text,
    event_id    text,
    subject     text        COLLATE "C",
    sequence    bigint      NOT NULL DEFAULT 0,
    time        timestamptz NOT NULL,
    appended_at timestamptz NOT NULL,
    headers     bytea       NOT NULL,
    value       bytea,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO event_log_before
SELECT topic, topic_id, partition, "offset", key, type, source, event_id, subject, sequence, time, appended_at, headers, value, recorded_at
FROM event_log JOIN event_log_topics ON no = topic_no;
DROP TABLE event_log;
DROP TABLE event_log_partitions;
DROP TABLE event_log_topics;
ALTER TABLE event_log_before RENAME TO event_log;
ALTER TABLE event_log ADD PRIMARY KEY (topic, topic_id, partition, "offset");
CREATE INDEX event_log_subject ON event_log (subject, sequence, topic_id, partition, "offset") WHERE subject IS NOT NULL;
