-- +goose Up

-- What admission calls a flow was called a lane, as were two other things: the events
-- of one key behind a dead letter, and those of one aggregate at the relay.
ALTER TABLE admission_lanes RENAME TO admission_flows;
ALTER INDEX admission_lanes_pkey RENAME TO admission_flows_pkey;
ALTER INDEX admission_lanes_by_user RENAME TO admission_flows_by_user;
ALTER INDEX admission_lanes_by_class RENAME TO admission_flows_by_class;
ALTER INDEX admission_lanes_by_key RENAME TO admission_flows_by_key;
ALTER TABLE admission_ledger RENAME COLUMN lane TO flow;
ALTER TABLE admission_feed RENAME COLUMN lane TO flow;
ALTER TABLE executions RENAME COLUMN lane TO flow;

-- +goose Down
ALTER TABLE executions RENAME COLUMN flow TO lane;
ALTER TABLE admission_feed RENAME COLUMN flow TO lane;
ALTER TABLE admission_ledger RENAME COLUMN flow TO lane;
ALTER INDEX admission_flows_by_key RENAME TO admission_lanes_by_key;
ALTER INDEX admission_flows_by_class RENAME TO admission_lanes_by_class;
ALTER INDEX admission_flows_by_user RENAME TO admission_lanes_by_user;
ALTER INDEX admission_flows_pkey RENAME TO admission_lanes_pkey;
ALTER TABLE admission_flows RENAME TO admission_lanes;
