-- +goose Up

-- Letters that are archived do not show unless somebody asks for them. Those that
-- are DELETED have lost their record and everything that quotes it.
ALTER TABLE dead_letters
    ADD COLUMN archived_at timestamptz,
    DROP CONSTRAINT dead_letters_known_status,
    ADD CONSTRAINT dead_letters_known_status CHECK (status IN ('OPEN', 'REDRIVEN', 'RESOLVED', 'DISCARDED', 'DELETED'));

CREATE INDEX dead_letters_archived ON dead_letters (archived_at) WHERE archived_at IS NOT NULL;
-- What is to be archived next.
CREATE INDEX dead_letters_settled ON dead_letters (last_failed_at)
    WHERE archived_at IS NULL AND status IN ('REDRIVEN', 'RESOLVED', 'DISCARDED');

-- +goose Down
DROP INDEX dead_letters_archived, dead_letters_settled;
DELETE FROM dead_letters WHERE status = 'DELETED';
ALTER TABLE dead_letters
    DROP COLUMN archived_at,
    DROP CONSTRAINT dead_letters_known_status,
    ADD CONSTRAINT dead_letters_known_status CHECK (status IN ('OPEN', 'REDRIVEN', 'RESOLVED', 'DISCARDED'));
