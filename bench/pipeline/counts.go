package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench/internal/measure"
)

// counts are what a part of a run did, in numbers that a busy machine does not
// change much: what one execution costs, wherever the time went.
type counts struct {
	Tables map[string]tableCounts `json:"tables"`
	// Calls of the publisher, and the records in them.
	PublishCalls float64 `json:"publish_calls"`
	Published    float64 `json:"published_records"`
	// Deliveries and Records are those handed to consumers, by consumer.
	Deliveries map[string]float64 `json:"deliveries"`
	Records    map[string]float64 `json:"delivered_records"`
	// Statements are those that PostgreSQL spent most of its time on, if
	// pg_stat_statements is loaded.
	Statements []statement `json:"statements,omitempty"`
	// Executed is how many statements ran in all, 0 without pg_stat_statements.
	Executed float64 `json:"statements_executed,omitempty"`
}

// tableCounts are what became of the rows of one table.
type tableCounts struct {
	Inserted int64 `json:"inserted"`
	Updated  int64 `json:"updated"`
	// Hot are updates that wrote no index entry.
	Hot     int64 `json:"updated_hot"`
	Deleted int64 `json:"deleted"`
}

// statement is one statement, whatever its arguments, as PostgreSQL counted it.
type statement struct {
	Text  string  `json:"text"`
	Calls float64 `json:"calls"`
	Rows  float64 `json:"rows"`
	// Millis is the time spent on planning and executing it.
	Millis   float64 `json:"ms"`
	LogBytes float64 `json:"wal_bytes"`
}

// partOfDay is what sets a partition apart from the others of its table.
var partOfDay = regexp.MustCompile(`_(default|\d+)$`)

// count reads the counters. One that cannot be read stays 0.
func (p *program) count(ctx context.Context) counts {
	c := counts{Tables: p.tables(ctx), Deliveries: map[string]float64{}, Records: map[string]float64{}}
	p.scrape(ctx, func(name, consumer string, value float64) {
		switch name {
		case "millrace_kafka_publish_seconds_count":
			c.PublishCalls += value
		case "millrace_kafka_published_records_total":
			c.Published += value
		case "millrace_event_processing_seconds_count":
			c.Deliveries[consumer] += value
		case "millrace_events_consumed_total":
			c.Records[consumer] += value
		}
	})
	if p.statements > 0 {
		_ = p.pool.QueryRow(ctx, `SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&c.Executed)
	}
	return c
}

func (p *program) tables(ctx context.Context) map[string]tableCounts {
	found := map[string]tableCounts{}
	rows, err := p.pool.Query(ctx, `SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables`)
	if err != nil {
		return found
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var t tableCounts
		if rows.Scan(&name, &t.Inserted, &t.Updated, &t.Hot, &t.Deleted) != nil {
			return found
		}
		name = partOfDay.ReplaceAllString(name, "")
		found[name] = t.plus(found[name], 1)
	}
	return found
}

func (t tableCounts) plus(o tableCounts, times int64) tableCounts {
	return tableCounts{t.Inserted + times*o.Inserted, t.Updated + times*o.Updated, t.Hot + times*o.Hot, t.Deleted + times*o.Deleted}
}

func (t tableCounts) written() int64 { return t.Inserted + t.Updated + t.Deleted }

var metricLine = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)$`)
var consumerLabel = regexp.MustCompile(`(?:^|,)consumer="([^"]*)"`)

// scrape reads Millrace's metrics.
func (p *program) scrape(ctx context.Context, each func(name, consumer string, value float64)) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.adminURL+"/metrics", nil)
	if err != nil {
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		m := metricLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			continue
		}
		consumer := ""
		if label := consumerLabel.FindStringSubmatch(m[2]); label != nil {
			consumer = label[1]
		}
		each(m[1], consumer, value)
	}
}

// resetStatements begins to count statements anew.
func (p *program) resetStatements(ctx context.Context) {
	if p.statements > 0 {
		_, _ = p.pool.Exec(ctx, `SELECT pg_stat_statements_reset()`)
	}
}

// dearest returns the statements that took most of PostgreSQL's time.
func (p *program) dearest(ctx context.Context) []statement {
	if p.statements == 0 {
		return nil
	}
	rows, err := p.pool.Query(ctx, `SELECT query, calls::float8, rows::float8, total_plan_time + total_exec_time, wal_bytes::float8
		FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
		ORDER BY 4 DESC LIMIT $1`, p.statements)
	if err != nil {
		return nil
	}
	defer rows.Close()
	var found []statement
	for rows.Next() {
		var s statement
		if rows.Scan(&s.Text, &s.Calls, &s.Rows, &s.Millis, &s.LogBytes) != nil {
			return found
		}
		s.Text = strings.Join(strings.Fields(s.Text), " ")
		found = append(found, s)
	}
	return found
}

func (c counts) since(before counts) counts {
	d := counts{
		Tables: map[string]tableCounts{}, Statements: c.Statements, Executed: c.Executed,
		PublishCalls: c.PublishCalls - before.PublishCalls, Published: c.Published - before.Published,
		Deliveries: less(c.Deliveries, before.Deliveries), Records: less(c.Records, before.Records),
	}
	for name, t := range c.Tables {
		if t = t.plus(before.Tables[name], -1); t.written() > 0 {
			d.Tables[name] = t
		}
	}
	return d
}

func less(now, before map[string]float64) map[string]float64 {
	d := make(map[string]float64, len(now))
	for name, n := range now {
		d[name] = n - before[name]
	}
	return d
}

// textWidth is how much of a statement is printed.
const textWidth = 100

// print prints the counts per execution.
func (c counts) print(w io.Writer, executions int) {
	n := float64(executions)
	per := func(x float64) string { return fmt.Sprintf("%.2f", x/n) }
	rows := [][]string{{"rows per execution", "inserted", "updated", "of these hot", "deleted"}}
	names := slices.SortedFunc(maps.Keys(c.Tables), func(a, b string) int {
		return int(c.Tables[b].written() - c.Tables[a].written())
	})
	for _, name := range names {
		if t := c.Tables[name]; float64(t.written())/n >= 0.01 {
			rows = append(rows, []string{
				name, per(float64(t.Inserted)), per(float64(t.Updated)), per(float64(t.Hot)), per(float64(t.Deleted))})
		}
	}
	measure.Table(w, rows...)
	rows = [][]string{
		{"kafka per execution", "calls", "records", "records per call"},
		{"published", per(c.PublishCalls), per(c.Published), fmt.Sprintf("%.1f", c.Published/max(c.PublishCalls, 1))},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Records)) {
		if calls, records := c.Deliveries[name], c.Records[name]; records > 0 {
			rows = append(rows, []string{"to " + name, per(calls), per(records), fmt.Sprintf("%.1f", records/max(calls, 1))})
		}
	}
	measure.Table(w, rows...)
	if len(c.Statements) == 0 {
		return
	}
	fmt.Fprintf(w, "  statements per execution: %s\n", per(c.Executed))
	rows = [][]string{{"calls", "µs", "rows", "log bytes", ""}}
	for _, s := range c.Statements {
		rows = append(rows, []string{per(s.Calls), fmt.Sprintf("%.0f", s.Millis*1000/n), per(s.Rows), fmt.Sprintf("%.0f", s.LogBytes/n),
			s.Text[:min(len(s.Text), textWidth)]})
	}
	measure.Table(w, rows...)
}
