package measure

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Table prints rows under a heading, in columns.
func Table(w io.Writer, rows ...[]string) {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(out, strings.Join(row, "\t")+"\t")
	}
	_ = out.Flush()
}

// Heading is the first row of a table of summaries.
func Heading(first string) []string {
	return []string{first, "count", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"}
}

// Row is one summary as a row of a table.
func Row(name string, s Summary) []string {
	row := []string{name, fmt.Sprint(s.Count)}
	for _, d := range []time.Duration{s.P50, s.P90, s.P99, s.P999, s.Max} {
		row = append(row, fmt.Sprintf("%.1f", Millis(d)))
	}
	return row
}
