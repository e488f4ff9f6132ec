package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Beside commits a scan always finds something that is handed over a moment later. That
// must not have it come again and again.
func TestAScanThatFindsWhatIsHandedOverIsNoNews(t *testing.T) {
	t.Parallel()
	s := schedule{pollMin: 5 * time.Millisecond, pollMax: 100 * time.Millisecond}
	s.done(scanned{}, false)
	first := s.poll
	for range 10 {
		before := s.poll
		s.done(scanned{found: 2}, false)
		assert.Equal(t, s.pollMin, s.poll, "there is something")
		s.knew()
		assert.Equal(t, s.pollMin, s.poll, "one of the two may be somebody else's")
		at := s.pollAt
		s.knew()
		assert.Equal(t, min(2*before, s.pollMax), s.poll, "nothing that would not have come")
		assert.Equal(t, at.Add(s.poll-s.pollMin), s.pollAt)
	}
	assert.Less(t, first, s.poll)
	s.done(scanned{found: 1}, false)
	assert.Equal(t, s.pollMin, s.poll, "what nobody hands over is news")
}
