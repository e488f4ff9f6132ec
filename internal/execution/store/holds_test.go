package store_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/execution"
	"github.com/millrace/millrace/internal/execution/store"
	"github.com/millrace/millrace/internal/holds"
)

// What is on hold is not admitted: by an admitter that was at work before the hold and
// knows the queue, nor by one that begins after it. What is not covered goes on, and
// what is resumed goes on where it was.
func TestWhatIsOnHoldIsNotAdmitted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target holds.Target
		held   []bool // of ada's, bob's, and bob's of the other class
	}{
		"everything": {holds.Target{Scope: holds.All}, []bool{true, true, true}},
		"a class":    {holds.Target{Scope: holds.Class, ResourceClass: "default"}, []bool{true, true, false}},
		"a user":     {holds.Target{Scope: holds.User, Tenant: "default", User: "ada"}, []bool{true, false, false}},
		"somebody of the same name": {
			holds.Target{Scope: holds.User, Tenant: "acme", User: "ada"}, []bool{false, false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			kept := holds.New(b.pool, func() {}, slog.New(slog.DiscardHandler))
			b.announce(100)
			b.announceClass("other", 100)
			memories := map[string]*store.Memory{"default": {}, "other": {}}
			admitAll := func() {
				for class, memory := range memories {
					b.admitted(round(func(a *store.Admission) { a.Class, a.Memory = class, memory }))
				}
			}
			submit := func() []string {
				ids := b.submit(request(user("ada")), request(user("bob")), request(user("bob"), class("other")))
				b.queue(ids...)
				return ids
			}
			states := func(ids []string) (held []bool) {
				for _, id := range ids {
					held = append(held, b.get(id).State == execution.Queued)
				}
				return held
			}
			before := submit()
			admitAll()
			assert.Equal(t, []bool{false, false, false}, states(before))
			_, placed, err := kept.Place(t.Context(), c.target, "ann", "maintenance")
			require.NoError(t, err)
			require.True(t, placed)

			known := submit()
			admitAll()
			assert.Equal(t, c.held, states(known))
			assert.Equal(t, []bool{false, false, false}, states(before), "what was admitted goes on")
			memories["default"], memories["other"] = &store.Memory{}, &store.Memory{}
			found := submit()
			admitAll()
			assert.Equal(t, c.held, states(known), "a restart resumes nothing")
			assert.Equal(t, c.held, states(found))
			for i, id := range found {
				assert.Equal(t, c.held[i], len(b.situation(id).Holds) == 1)
			}

			_, lifted, err := kept.Lift(t.Context(), c.target, "ann", "")
			require.NoError(t, err)
			require.True(t, lifted)
			admitAll()
			assert.Equal(t, []bool{false, false, false}, states(append(known[:2:2], found[0])), "what is resumed goes on")
			assert.Equal(t, []bool{false, false, false}, states(append(found[1:3:3], known[2])))
		})
	}
}
