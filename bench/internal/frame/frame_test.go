package frame

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/bench/internal/measure"
	"github.com/millrace/millrace/bench/internal/servers"
)

type finding struct {
	Rate int `json:"rate"`
}

func (f finding) Print(w io.Writer) { fmt.Fprintln(w, "rate", f.Rate) }

func TestReport(t *testing.T) {
	t.Parallel()
	r := &Run{Servers: &servers.Servers{Environment: measure.Environment{Kafka: "4.1", LoadBefore: "1"}}}
	r.Report("second", finding{2})
	r.Report("first", finding{1})
	var table, document bytes.Buffer
	require.NoError(t, r.write(&table, "table"))
	assert.Contains(t, table.String(), "Kafka 4.1")
	assert.Regexp(t, `(?s)\n\nrate 2\n\nrate 1\n$`, table.String())

	require.NoError(t, r.write(&document, "json"))
	var got struct {
		Environment   measure.Environment
		First, Second finding
	}
	require.NoError(t, json.Unmarshal(document.Bytes(), &got))
	assert.Equal(t, "4.1", got.Environment.Kafka)
	assert.Equal(t, []int{1, 2}, []int{got.First.Rate, got.Second.Rate})
}

func TestBadFlagsStartNothing(t *testing.T) {
	t.Parallel()
	p := Program{Name: "p", Flags: func(fs *flag.FlagSet) { fs.SetOutput(io.Discard) }, Check: func() error { return assert.AnError }}
	for want, args := range map[string][]string{
		"want table or json":   {"-o", "xml"},
		"unexpected argument":  {"more"},
		"not defined":          {"-nonsense"},
		assert.AnError.Error(): {},
	} {
		require.ErrorContains(t, p.main(t.Context(), args, io.Discard), want)
	}
	assert.NoError(t, p.main(t.Context(), []string{"-h"}, io.Discard))
}
