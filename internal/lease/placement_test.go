package lease

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// drawSlots draws groups of slots.
func drawSlots(t *rapid.T) (slots []Slot, sizes map[string]int) {
	sizes = make(map[string]int)
	for g := range rapid.IntRange(0, 30).Draw(t, "groups") {
		name := fmt.Sprintf("g%02d", g)
		sizes[name] = rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(t, "size")
		for n := range sizes[name] {
			slots = append(slots, Slot{Name: fmt.Sprintf("%s/%d", name, n), Group: name})
		}
	}
	return rapid.Permutation(slots).Draw(t, "order"), sizes
}

func loads(members []string, placed map[string]string) map[string]int {
	n := make(map[string]int)
	for _, m := range members {
		n[m] = 0
	}
	for _, m := range placed {
		n[m]++
	}
	return n
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots, sizes := drawSlots(t)
		var members []string
		for m := range rapid.IntRange(1, 6).Draw(t, "members") {
			members = append(members, fmt.Sprintf("m%d", m))
		}
		held := make(map[string]string)
		for _, slot := range slots {
			if holder := rapid.SampledFrom([]string{"", "m0", "m1", "m5", "gone"}).Draw(t, "holder"); holder != "" {
				held[slot.Name] = holder
			}
		}
		placed := place(slots, members, held)
		seats, plain := make(map[string]map[string]bool), true
		for _, slot := range slots {
			owner, ok := placed[slot.Name]
			if !ok {
				continue
			}
			assert.Contains(t, members, owner)
			if seats[slot.Group] == nil {
				seats[slot.Group] = make(map[string]bool)
			}
			if seats[slot.Group][owner] {
				t.Fatalf("%s has two slots of %s", owner, slot.Group)
			}
			seats[slot.Group][owner] = true
		}
		for group, size := range sizes {
			if want := min(size, len(members)); len(seats[group]) != want {
				t.Fatalf("%d slots of group %s have a place: want %d", len(seats[group]), group, want)
			}
			plain = plain && size == 1
		}
		n := loads(members, placed)
		least, most := len(slots), 0
		for _, load := range n {
			least, most = min(least, load), max(most, load)
		}
		if plain && most-least > 1 {
			t.Fatalf("shares are uneven: %v", n)
		}
		if again := place(slots, members, placed); !maps.Equal(again, placed) {
			t.Fatalf("what is even is moved: from %v to %v", placed, again)
		}
	})
}

func TestASlotThatComesOrGoesMovesNoOther(t *testing.T) {
	t.Parallel()
	members := []string{"a", "b", "c"}
	var slots []Slot
	for n := range 100 {
		slots = append(slots, Slot{Name: fmt.Sprintf("s%03d", n)})
	}
	before := place(slots[1:], members, nil)
	assert.Equal(t, map[string]int{"a": 33, "b": 33, "c": 33}, loads(members, before))
	after := place(slots, members, before)
	for name, owner := range before {
		assert.Equal(t, owner, after[name])
	}
	fewer := place(slots[2:], members, after)
	for name, owner := range fewer {
		assert.Equal(t, owner, after[name])
	}
}

// Slots leave one by one, and what is to follow stays the same meanwhile.
func TestHalfwayThroughAMoveTheGoalIsTheSame(t *testing.T) {
	t.Parallel()
	var slots []Slot
	held := make(map[string]string)
	for n := range 40 {
		slots = append(slots, Slot{Name: fmt.Sprintf("s%03d", n)})
		held[slots[n].Name] = "a"
	}
	members := []string{"a", "b"}
	goal := place(slots, members, held)
	for name, owner := range goal {
		if owner == "a" {
			continue
		}
		delete(held, name) // released
		assert.Equal(t, goal, place(slots, members, held))
		held[name] = "b" // and taken
		assert.Equal(t, goal, place(slots, members, held))
	}
	assert.Equal(t, goal, held)
}
