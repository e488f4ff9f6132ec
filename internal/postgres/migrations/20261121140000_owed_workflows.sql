-- +millrace needs 20261121126000
-- +goose Up
-- What is to follow another workflow and could not be started (timerNext in
-- internal/engine) is counted all the time, and tried when a definition comes: few rows
-- among the timers of all instances. No version before has this table, so nobody waits for the
-- lock.
CREATE INDEX wf_timers_owed ON wf_timers (instance_id) WHERE kind = 'next';

-- +goose Down
DROP INDEX wf_timers_owed;
