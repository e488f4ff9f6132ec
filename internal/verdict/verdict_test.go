package verdict

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatTheExitCodeSays(t *testing.T) {
	t.Parallel()
	wrong := errors.New("the verdict says it")
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{fmt.Errorf("play: %w", wrong), 1, ""},
		{errors.New("no broker"), 2, "demo: no broker\n"},
		{errors.Join(errors.New("no broker"), wrong), 1, ""},
	} {
		var out bytes.Buffer
		assert.Equal(t, c.code, end("demo", wrong, c.err, &out), c.err)
		assert.Equal(t, c.says, out.String(), c.err)
	}
}
