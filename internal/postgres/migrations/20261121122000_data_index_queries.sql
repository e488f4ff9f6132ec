-- +goose Up

-- Indexes of the lists and aggregates of the data index (internal/query; what each is
-- for and what it costs is in docs/data-index-queries.md). Lists are newest first, rows
-- without a start last, and page by the start and then the key. The key is not in the
-- indexes: hardly two rows of a list start in the same microsecond, and those that do
-- are sorted when they are read, while every byte of an index is written with every
-- event.

CREATE INDEX workflow_instances_newest ON workflow_instances (start DESC NULLS LAST);
-- Most instances complete, and a list of those is little else than the newest ones: the
-- index is for the few that do not, and is not written when one completes.
CREATE INDEX workflow_instances_by_status ON workflow_instances (status, start DESC NULLS LAST) WHERE status <> 'COMPLETED';
-- Lists of one definition, and all aggregates: what they group by and measure is in it.
CREATE INDEX workflow_instances_by_name ON workflow_instances (name, start DESC NULLS LAST)
    INCLUDE (namespace, version, status, "end");
-- Placeholders (projections.PlaceholderList), of which there are hardly ever any, the oldest first.
CREATE INDEX workflow_instances_placeholders ON workflow_instances (created_at, id)
    WHERE name IS NULL AND status IS NULL;
-- What a workflow was given is what people look for. Its output, and the documents of
-- tasks, of which there are more, are indexed on demand (query.Indexes).
CREATE INDEX workflow_instances_input ON workflow_instances USING gin (input jsonb_path_ops) WHERE input IS NOT NULL;

CREATE INDEX task_instances_newest ON task_instances (start DESC NULLS LAST);
CREATE INDEX task_instances_by_status ON task_instances (status, start DESC NULLS LAST) WHERE status <> 'COMPLETED';
CREATE INDEX task_instances_by_name ON task_instances (task_name, start DESC NULLS LAST) INCLUDE (status, "end");
CREATE INDEX task_instances_by_execution ON task_instances (task_execution_id)
    WHERE task_execution_id IS NOT NULL;

-- The same order for pods and sagas.
DROP INDEX pod_views_newest;
CREATE INDEX pod_views_newest ON pod_views (created_time DESC NULLS LAST, id DESC);
DROP INDEX saga_views_newest;
CREATE INDEX saga_views_newest ON saga_views (started_time DESC NULLS LAST, id DESC);
DROP INDEX saga_views_by_status;
CREATE INDEX saga_views_by_status ON saga_views (status, started_time DESC NULLS LAST, id DESC);

-- data_index_words makes the document of full text search: the words of some texts, and
-- of the texts and numbers in two JSON documents, but not of the names of their members.
-- A document of more than 100 000 bytes gives its first 20 000 characters as text, names
-- and all: a tsvector holds no more than 1 MiB, and an event must not fail for what it
-- carries. It is not put into the statements that call it (plpgsql), so that its cost
-- counts: without that, the planner reads the list from its beginning, making the
-- document of row after row, where it takes a rare phrase for a common one.
-- +goose StatementBegin
CREATE FUNCTION data_index_words(words text, a jsonb, b jsonb) RETURNS tsvector
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 10000 AS $$
BEGIN
    RETURN to_tsvector('simple'::regconfig, left(words, 20000))
        || CASE WHEN a IS NULL THEN ''::tsvector
                WHEN octet_length(a::text) <= 100000 THEN jsonb_to_tsvector('simple'::regconfig, a, '["string", "numeric"]')
                ELSE to_tsvector('simple'::regconfig, left(a::text, 20000)) END
        || CASE WHEN b IS NULL THEN ''::tsvector
                WHEN octet_length(b::text) <= 100000 THEN jsonb_to_tsvector('simple'::regconfig, b, '["string", "numeric"]')
                ELSE to_tsvector('simple'::regconfig, left(b::text, 20000)) END;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- Indexes that were made on demand depend on it.
DROP FUNCTION data_index_words(text, jsonb, jsonb) CASCADE;
DROP INDEX saga_views_by_status;
CREATE INDEX saga_views_by_status ON saga_views (status, started_time DESC, id DESC);
DROP INDEX saga_views_newest;
CREATE INDEX saga_views_newest ON saga_views (started_time DESC, id DESC);
DROP INDEX pod_views_newest;
CREATE INDEX pod_views_newest ON pod_views (created_time DESC, id DESC);
DROP INDEX task_instances_by_execution, task_instances_by_name, task_instances_by_status, task_instances_newest;
DROP INDEX workflow_instances_input, workflow_instances_placeholders, workflow_instances_by_name, workflow_instances_by_status, workflow_instances_newest;
