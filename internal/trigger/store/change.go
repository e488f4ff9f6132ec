package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/trigger"
)

// Status is what became of an applied definition.
type Status string

// What becomes of applied definitions.
const (
	Created   Status = "created"
	Updated   Status = "updated"
	Unchanged Status = "unchanged"
)

// Change says who changes a trigger, and how.
type Change struct {
	// By is who, for people. Tenant and User are whose the targets are where a new trigger
	// does not say it.
	By, Tenant, User string
	// DryRun does all but to store it.
	DryRun bool
	// Revision is the one that is to be changed; 0: whichever there is.
	Revision int64
}

// Applied is what became of a definition.
type Applied struct {
	trigger.Stored
	Status Status
	// Warnings are the faults that stopped nothing.
	Warnings []trigger.Fault
}

// ConflictError says that a trigger is of another revision than it was taken for.
type ConflictError struct {
	ID         string
	Want, Have int64
}

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("there is no trigger %s, and so no revision %d of it", e.ID, e.Want)
	}
	return fmt.Sprintf("trigger %s is at revision %d, not at %d: somebody has changed it", e.ID, e.Have, e.Want)
}

// Apply makes a trigger of a definition, or changes the one of its id. What the definition
// does not say of the tenant, the user and whether it is enabled stays as it was. The error
// is a *trigger.FaultsError when it cannot be run, or not in place of what there is, or a
// *ConflictError.
func (s *Store) Apply(ctx context.Context, d trigger.Definition, c Change) (Applied, error) {
	var out Applied
	changed, err := s.change(ctx, c.DryRun, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		var before *trigger.Stored
		switch found, err := one(ctx, tx, d.ID); {
		case err == nil:
			before = &found
		case !errors.Is(err, ErrNotFound):
			return false, err
		}
		if err := c.check(d.ID, before); err != nil {
			return false, err
		}
		var err error
		out, err = s.judge(ctx, tx, d, before, c)
		if err != nil || out.Status == Unchanged {
			return false, err
		}
		return true, s.write(ctx, tx, out.Stored)
	})
	if err != nil {
		return Applied{}, fmt.Errorf("apply trigger %s: %w", d.ID, err)
	}
	s.tell(changed && !c.DryRun)
	return out, nil
}

// check holds the revision against the one that is to be changed.
func (c Change) check(id string, before *trigger.Stored) error {
	var have int64
	if before != nil {
		have = before.Revision
	}
	if c.Revision != 0 && c.Revision != have {
		return &ConflictError{ID: id, Want: c.Revision, Have: have}
	}
	return nil
}

// judge says what would become of a definition.
func (s *Store) judge(ctx context.Context, tx pgx.Tx, d trigger.Definition, before *trigger.Stored, c Change) (Applied, error) {
	at, err := now(ctx, tx)
	if err != nil {
		return Applied{}, err
	}
	out := Applied{Stored: complete(d, before, c, at), Status: Updated}
	compiled, faults := trigger.Compile(out.Stored, s.config.Defaults)
	if err := trigger.Refused(faults); err != nil {
		return Applied{}, err
	}
	out.Type = compiled.Type
	further, err := s.around(ctx, tx, compiled, before)
	if err != nil {
		return Applied{}, err
	}
	faults = append(faults, further...)
	if err := trigger.Refused(faults); err != nil {
		return Applied{}, err
	}
	if further, err = s.missing(ctx, compiled); err != nil {
		return Applied{}, err
	}
	out.Warnings = slices.Concat(faults, further)
	if before == nil {
		out.Status = Created
		return out, nil
	}
	same, err := alike(out.Stored, *before)
	if same {
		out.Status, out.Stored = Unchanged, *before
	}
	return out, err
}

// missing warns of a workflow that there is not yet: messages wait until there is.
func (s *Store) missing(ctx context.Context, t *trigger.Compiled) ([]trigger.Fault, error) {
	id, version, pointer := t.StartsWorkflow()
	if id == "" || s.config.Workflows == nil {
		return nil, nil
	}
	known, err := s.config.Workflows(ctx, id, version)
	if err != nil || known {
		return nil, err
	}
	message := fmt.Sprintf("is of the workflow %q, which there is not yet: messages wait until there is", id)
	if version > 0 {
		message = fmt.Sprintf("is of version %d of the workflow %q, which there is not yet: messages wait until there is", version, id)
	}
	return []trigger.Fault{{Pointer: pointer, Code: trigger.CodeNoWorkflow, Message: message, Hint: "upload it with millrace workflows apply", Warning: true}}, nil
}

// complete says of a definition what it leaves to what there is.
func complete(d trigger.Definition, before *trigger.Stored, c Change, at time.Time) trigger.Stored {
	out := trigger.Stored{Definition: d, UID: uuid.Must(uuid.NewV7()).String(), Revision: 1, CreatedAt: at, CreatedBy: c.By, UpdatedAt: at, UpdatedBy: c.By}
	tenant, user, enabled := c.Tenant, c.User, true
	if before != nil {
		tenant, user, enabled = before.Tenant, before.User, before.IsEnabled()
		out.UID, out.Revision, out.CreatedAt, out.CreatedBy = before.UID, before.Revision+1, before.CreatedAt, before.CreatedBy
	}
	out.Tenant, out.User = cmp.Or(d.Tenant, tenant), cmp.Or(d.User, user)
	if d.Enabled == nil {
		out.Enabled = &enabled
	}
	return out
}

// alike says whether two say the same.
func alike(a, b trigger.Stored) (bool, error) {
	left, err := document(a.Definition)
	if err != nil {
		return false, err
	}
	right, err := document(b.Definition)
	return bytes.Equal(left, right) && a.IsEnabled() == b.IsEnabled(), err
}

// around holds a trigger against what was there before, and beside it.
func (s *Store) around(ctx context.Context, tx pgx.Tx, t *trigger.Compiled, before *trigger.Stored) (faults []trigger.Fault, err error) {
	if before != nil && before.Type != t.Type {
		return []trigger.Fault{{
			Pointer: "/type", Code: trigger.CodeImmutable,
			Message: fmt.Sprintf("is %s for ever: that is what trigger %s was applied as", before.Type, t.ID),
			Hint:    "choose another id, or delete the trigger first",
		}}, nil
	}
	if t.Kafka == nil {
		return nil, nil
	}
	if before != nil && group(*before) != t.Kafka.Group {
		return []trigger.Fault{{
			Pointer: "/kafka/group", Code: trigger.CodeImmutable,
			Message: fmt.Sprintf("is %q for ever: the position in the topics is that group's", group(*before)),
			Hint:    "leave it, or make a trigger with another id, which begins where from says",
		}}, nil
	}
	if faults, err = s.shared(ctx, tx, t); err != nil || before != nil {
		return faults, err
	}
	var at time.Time
	var id string
	err = tx.QueryRow(ctx, `SELECT id, deleted_at FROM deleted_triggers WHERE kafka_group = $1 ORDER BY deleted_at DESC LIMIT 1`, t.Kafka.Group).Scan(&id, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return faults, nil
	case err != nil:
		return nil, fmt.Errorf("look for deleted triggers: %w", err)
	}
	return append(faults, trigger.Fault{
		Pointer: "/kafka/group", Code: trigger.CodeGroupReused, Warning: true,
		Message: fmt.Sprintf("%q was that of trigger %s, which was deleted on %s: where the brokers still know its position, reading goes on from there",
			t.Kafka.Group, id, at.UTC().Format(time.RFC3339)),
		Hint: "name another group to begin where from says",
	}), nil
}

// group is the consumer group that a trigger has for ever.
func group(t trigger.Stored) string {
	if t.Kafka == nil {
		return ""
	}
	return cmp.Or(t.Kafka.Group, trigger.DefaultGroupPrefix+t.ID)
}

// shared refuses a group that somebody else reads with: each would get a part of the
// partitions.
func (s *Store) shared(ctx context.Context, tx pgx.Tx, t *trigger.Compiled) ([]trigger.Fault, error) {
	fault := func(who string) []trigger.Fault {
		return []trigger.Fault{{
			Pointer: "/kafka/group", Code: trigger.CodeConflict,
			Message: fmt.Sprintf("%q is that of %s: each of the two would get a part of the messages", t.Kafka.Group, who),
			Hint:    "leave the group out for one of its own",
		}}
	}
	others, err := read(ctx, tx, `WHERE kafka_group = $1 AND id <> $2 ORDER BY id`, t.Kafka.Group, t.ID)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if sameBrokers(s.brokers(other.Kafka), s.brokers(t.Kafka)) {
			return fault("trigger " + other.ID), nil
		}
	}
	if !sameBrokers(s.brokers(t.Kafka), s.config.Defaults.Brokers) {
		return nil, nil
	}
	var ours bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM consumers WHERE consumer_group = $1)`, t.Kafka.Group).Scan(&ours); err != nil {
		return nil, fmt.Errorf("look for a consumer of that group: %w", err)
	}
	if ours {
		return fault("a consumer of this installation"), nil
	}
	return nil, nil
}

func (s *Store) brokers(k *trigger.Kafka) []string {
	if k == nil || len(k.Brokers) == 0 {
		return s.config.Defaults.Brokers
	}
	return k.Brokers
}

// sameBrokers says whether two lists are of one cluster, as far as names can tell: they have
// a broker in common.
func sameBrokers(a, b []string) bool {
	return slices.ContainsFunc(a, func(broker string) bool { return slices.Contains(b, broker) })
}

// write stores a trigger, and tells the followers.
func (s *Store) write(ctx context.Context, tx pgx.Tx, t trigger.Stored) error {
	text, err := document(t.Definition)
	if err != nil {
		return err
	}
	uid, err := uuid.Parse(t.UID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO triggers (id, uid, type, tenant, revision, enabled, document, kafka_group, created_at, created_by, updated_at, updated_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (id) DO UPDATE SET
			tenant = excluded.tenant, revision = excluded.revision, enabled = excluded.enabled, document = excluded.document,
			updated_at = excluded.updated_at, updated_by = excluded.updated_by`,
		t.ID, uid, string(t.Type), t.Tenant, t.Revision, t.IsEnabled(), string(text), group(t), t.CreatedAt, t.CreatedBy, t.UpdatedAt, t.UpdatedBy)
	if err != nil {
		return fmt.Errorf("store trigger %s: %w", t.ID, err)
	}
	return s.follow(ctx, tx, t, false)
}

func (s *Store) follow(ctx context.Context, tx pgx.Tx, t trigger.Stored, deleted bool) error {
	for _, f := range s.config.Followers {
		if err := f.TriggerChanged(ctx, tx, t, deleted); err != nil {
			return fmt.Errorf("follow a change of trigger %s: %w", t.ID, err)
		}
	}
	return nil
}

// SetEnabled switches a trigger on or off and says whether it was not so before. A trigger
// that no longer compiles can be switched off, not on. The error is ErrNotFound, a
// *ConflictError or a *trigger.FaultsError.
func (s *Store) SetEnabled(ctx context.Context, id string, enabled bool, c Change) (out trigger.Stored, changed bool, err error) {
	changed, err = s.change(ctx, c.DryRun, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		var err error
		if out, err = one(ctx, tx, id); err != nil {
			return false, err
		}
		if err := c.check(id, &out); err != nil || out.IsEnabled() == enabled {
			return false, err
		}
		out.Enabled = &enabled
		if enabled {
			if _, err := s.Compile(out); err != nil {
				return false, err
			}
		}
		if out.UpdatedAt, err = now(ctx, tx); err != nil {
			return false, err
		}
		out.Revision, out.UpdatedBy = out.Revision+1, c.By
		return true, s.write(ctx, tx, out)
	})
	if err != nil {
		return trigger.Stored{}, false, fmt.Errorf("switch a trigger: %w", err)
	}
	s.tell(changed && !c.DryRun)
	return out, changed, nil
}

// Delete takes a trigger away. What it has made stays. The error is ErrNotFound or a
// *ConflictError.
func (s *Store) Delete(ctx context.Context, id string, c Change) (trigger.Stored, error) {
	var out trigger.Stored
	changed, err := s.change(ctx, c.DryRun, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		var err error
		if out, err = one(ctx, tx, id); err != nil {
			return false, err
		}
		if err := c.check(id, &out); err != nil {
			return false, err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM triggers WHERE id = $1`, id); err != nil {
			return false, err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO deleted_triggers (id, uid, kafka_group, deleted_by) VALUES ($1, $2::uuid, $3, $4)
			ON CONFLICT (id) DO UPDATE SET
				uid = excluded.uid, kafka_group = excluded.kafka_group, deleted_at = clock_timestamp(), deleted_by = excluded.deleted_by`,
			id, out.UID, group(out), c.By)
		if err != nil {
			return false, err
		}
		return true, s.follow(ctx, tx, out, true)
	})
	if err != nil {
		return trigger.Stored{}, fmt.Errorf("delete a trigger: %w", err)
	}
	s.tell(changed && !c.DryRun)
	return out, nil
}

// errDryRun takes a transaction back that was only to show what it would do.
var errDryRun = errors.New("nothing was to be stored")

// change runs fn as the one change of triggers at a time, and raises the version if it says
// that it has changed something.
func (s *Store) change(ctx context.Context, dryRun bool, fn func(context.Context, pgx.Tx) (bool, error)) (changed bool, err error) {
	err = postgres.InTx(ctx, s.config.Pool, func(ctx context.Context, tx pgx.Tx) error {
		changed = false
		if _, err := tx.Exec(ctx, `SELECT FROM trigger_changes FOR UPDATE`); err != nil {
			return fmt.Errorf("wait for other changes of triggers: %w", err)
		}
		var err error
		if changed, err = fn(ctx, tx); err != nil {
			return err
		}
		if dryRun {
			return errDryRun
		}
		if changed {
			_, err = tx.Exec(ctx, `UPDATE trigger_changes SET version = version + 1`)
		}
		return err
	})
	if dryRun && errors.Is(err, errDryRun) {
		err = nil
	}
	return changed, err
}

// tell wakes those who follow triggers.
func (s *Store) tell(changed bool) {
	if changed && s.config.Signals != nil {
		s.config.Signals.Wake(WakeName)
	}
}
