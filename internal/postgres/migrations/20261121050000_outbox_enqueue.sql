-- +goose Up

-- One header as the column headers holds it: the length of its name, the name, the
-- length of its value (-1 for null), the value. See EncodeHeaders in internal/outbox.
-- +goose StatementBegin
CREATE FUNCTION millrace_encode_header(name text, value text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN int4send(octet_length(convert_to(name, 'UTF8'))) || convert_to(name, 'UTF8')
    || CASE WHEN value IS NULL THEN int4send(-1)
            ELSE int4send(octet_length(convert_to(value, 'UTF8'))) || convert_to(value, 'UTF8') END;
-- +goose StatementEnd

-- millrace_enqueue puts an event into the outbox, in the caller's transaction, as
-- outbox.Append does in Go. It returns the event's id.
--
-- key NULL means the aggregate's id; payload NULL is a tombstone. headers is an
-- object of Kafka header names and texts. Attributes of the event go by their Kafka
-- names: ce_id, ce_source, ce_time, ce_subject, traceparent ... Left out, the id is a
-- new UUID, the source /millrace/sql, the time now, the subject the aggregate's id,
-- the content type application/json. All other headers are published in the order of
-- their names; null is a header without a value.
--
-- The aggregate is locked until the transaction ends, so call it late, and for
-- several aggregates in an order that all your transactions share.
-- +goose StatementBegin
CREATE FUNCTION millrace_enqueue(
    aggregate_type text, aggregate_id text, event_type text, topic text,
    key text DEFAULT NULL, payload jsonb DEFAULT NULL, headers jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
    digest     bytea := sha256(convert_to(aggregate_id, 'UTF8'));
    attributes jsonb;
    event_id   text;
    encoded    bytea;
BEGIN
    IF coalesce(aggregate_type, '') = '' OR coalesce(aggregate_id, '') = '' OR coalesce(event_type, '') = '' OR coalesce(topic, '') = '' THEN
        RAISE EXCEPTION 'millrace_enqueue: aggregate type, aggregate id, event type and topic are required'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    headers := coalesce(headers, '{}');
    IF jsonb_typeof(headers) <> 'object' THEN
        RAISE EXCEPTION 'millrace_enqueue: headers must be a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    event_id := coalesce(nullif(headers ->> 'ce_id', ''), gen_random_uuid()::text);
    attributes := jsonb_build_object(
            'ce_source', '/millrace/sql',
            'ce_time', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'ce_subject', aggregate_id,
            'content-type', 'application/json')
        || headers
        || jsonb_build_object('ce_id', event_id, 'ce_type', event_type, 'ce_specversion', '1.0', '_watermill_message_uuid', event_id);

    -- The order in which Go writes them: attributes as listed, extensions by name,
    -- the message id, everything else by name. An empty attribute is none.
    SELECT '\x01'::bytea || string_agg(millrace_encode_header(h.name, h.value), ''::bytea ORDER BY h.place, h.name COLLATE "C")
    INTO encoded
    FROM (
        SELECT a.name, a.value, coalesce(
            array_position(ARRAY['ce_id', 'ce_type', 'ce_source', 'ce_specversion', 'ce_time', 'ce_subject', 'ce_dataschema',
                'ce_sequence', 'content-type', 'traceparent', 'tracestate', 'correlationid', 'causationid'], a.name),
            CASE WHEN a.name LIKE 'ce\_%' THEN 20 WHEN a.name = '_watermill_message_uuid' THEN 30 ELSE 40 END) AS place
        FROM jsonb_each_text(attributes) AS a(name, value)
    ) AS h
    WHERE h.place >= 40 OR coalesce(h.value, '') <> '';

    PERFORM pg_advisory_xact_lock(x'6f757462'::integer, ((get_byte(digest, 1) << 8) | get_byte(digest, 2)) % 1024);
    -- The relay relies on the transaction having an id before a number is drawn.
    PERFORM pg_current_xact_id();
    INSERT INTO outbox_events (id, shard, aggregate_type, aggregate_id, event_type, topic, partition_key, payload, headers)
    VALUES (
        CASE WHEN event_id ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN event_id::uuid ELSE gen_random_uuid() END,
        get_byte(digest, 0) % 16, aggregate_type, aggregate_id, event_type, topic,
        convert_to(coalesce(key, aggregate_id), 'UTF8'), convert_to(payload::text, 'UTF8'), encoded);
    RETURN event_id;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION millrace_enqueue(text, text, text, text, text, jsonb, jsonb);
DROP FUNCTION millrace_encode_header(text, text);
