-- +goose Up

-- What each attempt ended in, where a panic came from, and who wrote the letter.
ALTER TABLE dead_letters
    ADD COLUMN history jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN stack   text  NOT NULL DEFAULT '',
    ADD COLUMN origin  text  NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE dead_letters DROP COLUMN history, DROP COLUMN stack, DROP COLUMN origin;
