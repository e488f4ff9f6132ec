package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millrace/millrace/app"
	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/embedded"
	"github.com/millrace/millrace/internal/kafka"
	"github.com/millrace/millrace/internal/lease"
	"github.com/millrace/millrace/internal/postgres"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/internal/retention"
	"github.com/millrace/millrace/internal/routing"
)

const (
	// patience bounds each conversation with a server.
	patience = 10 * time.Second
	// maxSkew is how far clocks may be apart before times in events mislead.
	maxSkew = time.Second
	// signalConns is what a process opens beside its pool.
	signalConns = 1
)

func (x *examination) postgres(ctx context.Context, config configs.Config) {
	if config.Postgres.DSN.IsZero() {
		x.add(checkSkip, "postgres", "postgres.dsn is not set, and no `millrace up` runs here: one would bring its own", "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pool, err := postgres.Open(ctx, app.PostgresConfig(config))
	if err != nil {
		x.fail("postgres", err, "check postgres.dsn, and that the server runs and takes connections from this machine")
		return
	}
	defer pool.Close()
	facts, err := postgres.Inspect(ctx, pool)
	if err != nil {
		x.fail("postgres", err, "")
		return
	}
	x.facts(facts)
	x.schema(ctx, pool, config)
}

// facts judges what the server told about itself.
func (x *examination) facts(f postgres.Facts) {
	if err := f.Supported(); err != nil {
		x.fail("postgres version", err, fmt.Sprintf("use PostgreSQL %d to %d", postgres.MinMajor, postgres.MaxMajor))
	} else {
		x.ok("postgres version", "%s", f.Version)
	}
	switch {
	case f.InRecovery:
		x.add(checkFail, "postgres rights", "the server is a standby and takes no writes", "point postgres.dsn at the primary")
	case f.ReadOnly:
		x.add(checkFail, "postgres rights", "transactions are read-only by default", "ALTER ROLE "+f.User+" SET default_transaction_read_only = off")
	case f.Schema == "":
		x.add(checkFail, "postgres rights", "the search path of "+f.User+" names no schema that exists", "CREATE SCHEMA, or set search_path in postgres.dsn")
	case !f.CanCreate:
		x.add(checkFail, "postgres rights", fmt.Sprintf("%s may not create tables in schema %s", f.User, f.Schema), fmt.Sprintf("GRANT CREATE ON SCHEMA %s TO %s", f.Schema, f.User))
	default:
		x.ok("postgres rights", "%s may create tables in schema %s of database %s", f.User, f.Schema, f.Database)
	}
	x.connections(f)
	x.clock(f)
	x.durability(f)
	if f.Encoding != "UTF8" {
		x.add(checkFail, "postgres encoding", "the database is "+f.Encoding+": not every text can be stored", "create it with ENCODING 'UTF8'")
	}
}

func (x *examination) connections(f postgres.Facts) {
	need := f.PoolConns + signalConns
	// The pool that asks has one connection open, which is among those in use.
	detail := fmt.Sprintf("a process opens up to %d; %d of %d are free", need, f.FreeConns()+1, f.MaxConns-f.ReservedConns)
	if need > f.FreeConns()+1 {
		x.add(checkFail, "postgres connections", detail, "lower postgres.max_conns, raise max_connections of the server, or put a pooler in session mode between")
		return
	}
	if 2*need > f.FreeConns()+1 {
		x.add(checkWarn, "postgres connections", detail, "there is room for one process: for more, lower postgres.max_conns or raise max_connections")
		return
	}
	x.ok("postgres connections", "%s", detail)
}

func (x *examination) clock(f postgres.Facts) {
	skew := f.ClockSkew.Abs()
	detail := fmt.Sprintf("%s apart, known up to %s", skew.Round(time.Millisecond), (f.RoundTrip / 2).Round(time.Microsecond))
	if skew > maxSkew+f.RoundTrip/2 {
		x.add(checkWarn, "clocks", "this machine and the database are "+detail, "synchronise them (NTP): leases do not depend on it, the times of events do")
		return
	}
	x.ok("clocks", "%s", detail)
}

func (x *examination) durability(f postgres.Facts) {
	var off []string
	for name, on := range map[string]bool{"fsync": f.Fsync, "full_page_writes": f.FullPageWrites, "synchronous_commit": f.SynchronousCommit != "off"} {
		if !on {
			off = append(off, name)
		}
	}
	if len(off) > 0 {
		x.add(checkWarn, "postgres durability", strings.Join(off, ", ")+" is off: a crash can lose what was acknowledged", "switch it on for anything but tests")
		return
	}
	x.ok("postgres durability", "what is acknowledged survives a crash")
}

func (x *examination) schema(ctx context.Context, pool *pgxpool.Pool, config configs.Config) {
	if err := postgres.CheckCurrent(ctx, pool); err != nil {
		x.add(checkWarn, "schema", err.Error(), "")
		return
	}
	x.ok("schema", "current%s", newerMigrations(ctx, pool))
	x.partitions(ctx, pool)
	x.routes(ctx, pool)
	x.replays(ctx, pool)
	x.triggers(ctx, pool, config)
}

// newerMigrations tells of the migrations of a newer version, with which this one goes on.
func newerMigrations(ctx context.Context, pool *pgxpool.Pool) string {
	status, err := postgres.MigrationStatus(ctx, pool)
	n := 0
	for _, m := range status {
		if m.Newer {
			n++
		}
	}
	if err != nil || n == 0 {
		return ""
	}
	return fmt.Sprintf("; the database has %s that this version need not know", plural(n, "newer migration"))
}

// routes looks whether tasks go where somebody reads them.
func (x *examination) routes(ctx context.Context, pool *pgxpool.Pool) {
	routes, err := routing.Inspect(ctx, pool)
	if err != nil {
		x.fail("task routes", err, "")
		return
	}
	const advice = "coordinator.classes.*.topic of the coordinator, and worker.topics or worker.resource_classes of the workers, must fit together; a stage in between must run"
	for _, r := range routes {
		name := "task route " + r.Class
		switch verdict, words := r.Judge(); verdict {
		case routing.Unread:
			x.add(checkFail, name, words, advice)
		case routing.Partial:
			x.add(checkWarn, name, words, advice)
		case routing.Idle:
			x.add(checkSkip, name, words, "")
		default:
			x.ok(name, "%s", words)
		}
	}
}

// replays looks whether replays go on, and whether somebody carries them out.
func (x *examination) replays(ctx context.Context, pool *pgxpool.Pool) {
	counts, err := replay.New(replay.Config{Pool: pool}).Counts(ctx)
	if err != nil {
		x.fail("replays", err, "")
		return
	}
	keeper, err := lease.HolderOf(ctx, pool, replay.LeaseName)
	if err != nil {
		x.fail("replays", err, "")
		return
	}
	waiting, stopped := counts[replay.Pending]+counts[replay.Running], counts[replay.Stopped]
	switch {
	case waiting > 0 && !keeper.Live:
		x.add(checkWarn, "replays", fmt.Sprintf("%d wait, and no process carries them out", waiting), "start one with the role maintenance, or cancel them: millrace replay list --state pending,running")
	case stopped > 0:
		x.add(checkWarn, "replays", fmt.Sprintf("%d have stopped", stopped), "millrace replay list --state stopped says why; resume them once that is mended, or cancel them")
	default:
		x.ok("replays", "%d under way, %d paused", waiting, counts[replay.Paused])
	}
}

// partitions looks whether somebody makes and drops partitions.
func (x *examination) partitions(ctx context.Context, pool *pgxpool.Pool) {
	s, err := retention.Inspect(ctx, pool)
	if err != nil {
		x.fail("partitions", err, "")
		return
	}
	const advice = "a process with the role maintenance makes them, at its start and hourly; its log says what keeps it from that"
	ahead, strays := s.AheadDays(), s.StrayRows()
	switch {
	case len(s.Generations) == 0:
		x.add(checkFail, "partitions", "the inbox has no generation to write to", "insert the newest number of processed_events_* into processed_generations")
	case ahead < 0:
		x.add(checkWarn, "partitions", fmt.Sprintf("the outbox has none for today; %d rows lie in the default one", strays), advice)
	case ahead < retention.Ahead-1: // the last is made within an hour after midnight
		x.add(checkWarn, "partitions", fmt.Sprintf("the outbox has them for %d more days only, not for %d", ahead, retention.Ahead), advice)
	case strays > 0:
		x.add(checkWarn, "partitions", fmt.Sprintf("%d rows of the outbox lie in the default one", strays), advice)
	case s.AheadWeeks() < retention.WeeksAhead-1:
		x.add(checkWarn, "partitions", fmt.Sprintf("the event log has them for %d more weeks only, not for %d", s.AheadWeeks(), retention.WeeksAhead), advice)
	default:
		x.ok("partitions", "the outbox has them for %d more days, the event log for %d more weeks", ahead, s.AheadWeeks())
	}
}

func (x *examination) kafka(ctx context.Context, config configs.Config) {
	if len(config.Kafka.Brokers) == 0 {
		x.add(checkSkip, "kafka", "kafka.brokers is not set, and no `millrace up` runs here: one would bring its own", "")
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	admin, err := kafka.NewAdmin(app.KafkaConfig(config, slog.New(slog.DiscardHandler)))
	if err != nil {
		x.fail("kafka", err, "")
		return
	}
	defer admin.Close()
	if err := plainly(ctx, admin.Ping(ctx)); err != nil {
		x.fail("kafka", err, "check kafka.brokers, kafka.tls and kafka.sasl, and that the brokers' advertised addresses can be reached from here")
		return
	}
	x.ok("kafka driver", "%s", config.Kafka.Driver)
	x.kafkaVersion(ctx, admin)
	x.topics(ctx, admin, config)
}

func (x *examination) kafkaVersion(ctx context.Context, admin *kafka.Admin) {
	if id, err := admin.ClusterID(ctx); err == nil && id == embedded.ClusterID {
		x.ok("kafka version", "the embedded broker: for development, use Apache Kafka 3.9 to 4.x in production")
		return
	}
	version, err := admin.Version(ctx)
	if err != nil {
		x.fail("kafka version", err, "")
		return
	}
	for line := range strings.SplitSeq(version, "\n") {
		if known, ok := supportedKafka(line); known && !ok {
			x.add(checkFail, "kafka version", line+" is not supported", "use Apache Kafka 3.9 to 4.x")
			continue
		}
		x.ok("kafka version", "%s", line)
	}
}

// supportedKafka reads a version such as "v4.2" or "at least v3.9". known is
// false for a text that names none.
func supportedKafka(text string) (known, ok bool) {
	_, number, found := strings.Cut(text, "v")
	major, minor, dotted := strings.Cut(number, ".")
	m, errMajor := strconv.Atoi(major)
	n, errMinor := strconv.Atoi(strings.TrimRight(minor, "+"))
	if !found || !dotted || errMajor != nil || errMinor != nil {
		return false, false
	}
	return true, m == 4 || m == 3 && n >= 9
}

// topics compares the topics at the broker with the configuration. It creates
// nothing.
func (x *examination) topics(ctx context.Context, admin *kafka.Admin, config configs.Config) {
	list, err := admin.ListTopics(ctx)
	if err != nil {
		x.fail("topics", err, "the user needs the right to describe topics")
		return
	}
	partitions := make(map[string]int, len(list))
	for _, t := range list {
		partitions[t.Name] = t.Partitions
	}
	var missing []string
	for _, want := range app.TopicConfigs(config) {
		have, exists := partitions[want.Name]
		switch {
		case !exists:
			missing = append(missing, want.Name)
		case have != int(want.Partitions):
			x.add(checkWarn, "topics", fmt.Sprintf("%s has %d partitions, not %d", want.Name, have, want.Partitions), "set topics.*.partitions to what there is; adding partitions later breaks the order per key")
		}
	}
	if len(missing) > 0 {
		x.add(checkWarn, "topics", "missing: "+strings.Join(missing, ", "), "they are made at the start, or by `millrace topics create`")
		return
	}
	x.ok("topics", "all there")
	for _, warning := range app.WindowWarnings(ctx, admin, config) {
		x.add(checkWarn, "inbox window", warning, "")
	}
	for _, warning := range app.TimeWarnings(ctx, admin, config) {
		x.add(checkWarn, "topic times", warning, "")
	}
}
