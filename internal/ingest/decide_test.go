package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/trigger"
)

func TestHoldsZero(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{}`: false, `"\u0000"`: true, `"\\u0000"`: false, `"\\\u0000"`: true, `"\\\\u0000"`: false, `"\\u0000 \u0000"`: true, `"\u0001"`: false, `\u0000`: true,
	} {
		assert.Equal(t, want, holdsZero([]byte(text)), text)
	}
}

func TestWhatIsCutIsText(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a", cut("aü", 2))
	assert.Equal(t, "aü", cut("aü", 3))
	assert.Equal(t, "\uFFFD\uFFFD", cut("\x00\xff", 10))
}

// world is an inbox in memory, and what was made.
type world struct {
	inbox map[inbox.Key]string
	// effects are how often something was made of each event.
	effects map[string]int
}

// create is what a transaction does with messages: claim, decide, correct.
func (w *world) create(t *rapid.T, c *trigger.Compiled, items []*item, room int) ([]fate, *BlockedError) {
	target := func(it *item) string { return targetExecution + it.id.String() }
	claims := claimsOf(items, target)
	f := facts{fresh: map[inbox.Key]bool{}, known: map[inbox.Key]string{}, room: room}
	for _, claim := range claims {
		if known, ok := w.inbox[claim.Key]; !ok {
			w.inbox[claim.Key], f.fresh[claim.Key] = claim.Target, true
		} else if !f.fresh[claim.Key] {
			f.known[claim.Key] = known
		}
	}
	fates, blocked := decide(c, items, f)
	right := correct(items, fates, f, claims, target)
	for _, k := range right.forget {
		require.True(t, f.fresh[k], "only what this transaction has entered is forgotten")
		delete(w.inbox, k)
	}
	for _, claim := range right.retarget {
		require.Contains(t, w.inbox, claim.Key)
		w.inbox[claim.Key] = claim.Target
	}
	return fates, blocked
}

// Whatever comes again, in whatever batches, at whatever place, poison among it and a limit
// in the way: what has an identity is made once, repetitions are told of the first, and the
// inbox knows what was made and nothing else.
func TestEachMessageIsMadeOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &trigger.Compiled{}
		c.LimitAction = rapid.SampledFrom([]trigger.LimitAction{trigger.LimitStall, trigger.LimitReject}).Draw(t, "action")
		c.OnPoison = rapid.SampledFrom([]trigger.OnPoison{trigger.PoisonStall, trigger.PoisonDeadLetter}).Draw(t, "poison")
		w := &world{inbox: map[inbox.Key]string{}, effects: map[string]int{}}
		made := map[string]string{} // by event, and by place
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			var items []*item
			for range rapid.IntRange(1, 6).Draw(t, "size") {
				event := rapid.IntRange(0, 4).Draw(t, "event")
				m := &Message{Place: &Place{Cluster: "c", Offset: int64(event + 10*rapid.IntRange(0, 2).Draw(t, "copy"))}}
				if rapid.Bool().Draw(t, "has place only") {
					m.Place.Offset += 1000
				} else {
					m.Identity = fmt.Sprint("e", event)
				}
				it := &item{Message: m, id: uuid.New(), keys: keysOf(m)}
				if rapid.IntRange(0, 4).Draw(t, "bad") == 0 {
					it.refusal = &Refusal{"mapping", "no"}
				}
				items = append(items, it)
			}
			room := rapid.IntRange(-1, 4).Draw(t, "room")
			fates, blocked := w.create(t, c, items, room)
			if blocked == nil {
				require.Len(t, fates, len(items))
			} else {
				require.Equal(t, len(fates), blocked.Index)
			}
			count := 0
			for i, ft := range fates {
				names := append([]string{}, items[i].Identity, fmt.Sprint(items[i].Place.Offset))
				switch {
				case ft.made:
					count++
					for _, name := range names {
						if name != "" {
							require.NotContains(t, made, name, "made twice")
							made[name] = ft.ID
						}
					}
				case ft.Status == Duplicate:
					require.True(t, made[names[0]] == ft.ID || made[names[1]] == ft.ID, "told of something else")
					for _, name := range names {
						if name != "" && made[name] == "" {
							made[name] = ft.ID
						}
					}
				default:
					require.Error(t, items[i].refusalOr(ft))
					require.True(t, ft.letter)
				}
			}
			if room >= 0 {
				require.LessOrEqual(t, count, room)
			}
			for k, target := range w.inbox {
				id, ok := strings.CutPrefix(target, targetExecution)
				require.True(t, ok)
				found := false
				for _, known := range made {
					found = found || known == id
				}
				require.True(t, found, "%v leads to what was not made", k)
			}
		}
	})
}

func (it *item) refusalOr(ft fate) error {
	if it.refusal != nil {
		return it.refusal
	}
	return ft.Err
}
