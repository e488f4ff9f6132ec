package projections_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/middleware"
	"github.com/millrace/millrace/projections"
	"github.com/millrace/millrace/projections/projectionstest"
	"github.com/millrace/millrace/topics"
)

// A read model with every rule, of events that are what they set.
const thingsSQL = `
CREATE TABLE things (
	name text, part int, PRIMARY KEY (name, part),
	born timestamptz, born_mark uuid, word text, word_mark uuid, ends text, ends_mark uuid,
	status text GENERATED ALWAYS AS (CASE WHEN ended_mark > opened_mark OR opened_mark IS NULL AND ended_mark IS NOT NULL THEN ended ELSE active END) STORED,
	active text, active_mark uuid, ended text, ended_mark uuid, opened_mark uuid,
	left_ text, right_ text, pair_mark uuid, top bigint, least_ bigint, doc jsonb, doc_mark uuid,
	history_from timestamptz, events_future boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE parents (name text PRIMARY KEY, title text, title_mark uuid, history_from timestamptz,
	events_future boolean NOT NULL DEFAULT false, created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now())`

type thing struct {
	Parent                    bool
	Part                      int
	Title, Word, Active, Ends string
	Born                      time.Time
	Open, Pair                bool
	Left, Right               string
	Number                    *int
	Doc                       json.RawMessage
	Fault                     bool
}

var errFault = errors.New("this event is at fault")

func things() projections.Projection {
	parents := projections.NewTable("parents", projections.ByTime)
	parents.Key("name", projections.Text, "name")
	title := parents.Last("title", projections.Text, "title")

	t := projections.NewTable("things", projections.ByTime)
	t.Key("name", projections.Text, "name")
	t.Key("part", projections.Int, "part")
	born, word := t.First("born", projections.Time, ""), t.Last("word", projections.LongText, "")
	ends := t.Last("ends", projections.Text, "")
	active := t.Register("active_mark").Column("active", projections.Text, "")
	ended := t.Register("ended_mark").Column("ended", projections.Text, "")
	opened := t.Register("opened_mark")
	pair := t.Register("pair_mark")
	left, right := pair.Column("left_", projections.Text, ""), pair.Column("right_", projections.Text, "")
	top, least := t.Highest("top", projections.Int, ""), t.Lowest("least_", projections.Int, "")
	document := t.Last("doc", projections.JSON, "")

	return projections.Projection{
		Name: "things", Topic: "things", Tables: []*projections.Table{parents, t},
		Apply: func(b *projections.Batch, e projections.Event) error {
			var d thing
			if err := json.Unmarshal(e.Data, &d); err != nil || d.Fault {
				return errors.Join(errFault, err)
			}
			parent := b.Row(parents, e.Subject)
			parent.Set(title, d.Title)
			if d.Parent {
				return nil
			}
			row := b.Row(t, e.Subject, d.Part)
			row.Set(born, d.Born)
			row.Set(word, d.Word)
			row.Set(top, d.Number)
			row.Set(least, d.Number)
			row.Set(document, d.Doc)
			if d.Pair {
				row.Set(left, d.Left)
				row.Set(right, d.Right)
			}
			switch d.Active {
			case "":
			case "CREATED":
				row.SetRanked(active, d.Active, 0)
			default:
				row.SetRanked(active, d.Active, 1)
			}
			if d.Ends != "" {
				row.Set(ended, d.Ends)
				row.Set(ends, d.Ends)
			}
			if d.Open {
				row.SetRanked(active, "RUNNING", 1)
				row.Note(opened)
				row.Clear(ends)
			}
			return nil
		},
	}
}

func thingsDatabase(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := database(t)
	_, err := pool.Exec(t.Context(), thingsSQL)
	require.NoError(t, err)
	return pool
}

// told makes the record of an event: after that many seconds, by its own clock and by
// the broker's.
func told(seconds int, id string, d thing) topics.Record {
	env := topics.Envelope{ID: id, Source: "/elsewhere", Type: "thing.told", Subject: "x",
		Time: start.Add(time.Duration(seconds) * time.Second), DataContentType: "application/json"}
	env.Data, _ = json.Marshal(d)
	r := env.Record("things", []byte("x"))
	r.Timestamp = env.Time
	return r
}

func number(n int) *int { return &n }

func TestEveryRuleIsIndifferentToOrder(t *testing.T) {
	t.Parallel()
	pool := thingsDatabase(t)
	ahead := told(3, "h", thing{Word: "from the future", Part: 1})
	ahead.Timestamp = start.Add(-time.Hour)
	histories := map[string][]topics.Record{
		"a life": {
			told(1, "a", thing{Active: "CREATED", Born: start.Add(time.Hour), Number: number(3)}),
			told(2, "b", thing{Active: "RUNNING", Word: "one", Pair: true, Left: "l"}),
			told(3, "c", thing{Ends: "FAILED", Number: number(-2)}),
			told(4, "d", thing{Open: true, Doc: json.RawMessage(`{"a":[1,"\u0000"]}`)}),
			told(5, "e", thing{Ends: "DONE", Pair: true, Right: "r"}),
		},
		"clocks that disagree": {
			told(9, "a", thing{Active: "CREATED"}), told(2, "b", thing{Active: "RUNNING"}), told(3, "c", thing{Active: "PAUSED"}),
			told(1, "d", thing{Ends: "DONE"}), told(8, "e", thing{Active: "RUNNING"}),
		},
		"one instant": {
			told(1, "a", thing{Word: "a", Born: start.Add(1)}), told(1, "b", thing{Word: "b", Born: start.Add(time.Hour)}),
			told(1, "c", thing{Word: "c", Ends: "DONE"}), told(1, "d", thing{Open: true}), told(1, "e", thing{Ends: "FAILED"}),
		},
		"parents and parts": {
			told(1, "a", thing{Part: 1, Word: "a"}), told(2, "b", thing{Part: 2, Word: "b"}),
			told(3, "c", thing{Parent: true, Title: "t"}), told(0, "d", thing{Parent: true, Title: "s"}), ahead,
		},
	}
	for name, history := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, row := range projectionstest.Converge(t, pool, things(), history)["things"] {
				t.Log(row)
			}
		})
	}
	t.Run("all of them", func(t *testing.T) {
		t.Parallel()
		projectionstest.Converge(t, pool, things(), slices.Concat(histories["a life"], histories["clocks that disagree"], histories["one instant"]))
	})
}

func TestWhatTheRulesGive(t *testing.T) {
	t.Parallel()
	pool := thingsDatabase(t)
	one := func(history ...topics.Record) map[string]any {
		rows := projectionstest.Converge(t, pool, things(), history)["things"]
		require.Len(t, rows, 1)
		return rows[0]
	}
	running, failed := told(2, "b", thing{Active: "RUNNING"}), told(3, "c", thing{Ends: "FAILED"})
	row := one(told(5, "a", thing{Active: "CREATED", Word: "w"}), running)
	assert.Equal(t, "RUNNING", row["status"], "created ranks below all else, whatever its time")
	row = one(failed, told(9, "x", thing{Active: "PAUSED"}))
	assert.Equal(t, "FAILED", row["status"], "only a reopening leads out of an end")
	row = one(failed, told(4, "d", thing{Open: true}))
	assert.Equal(t, "RUNNING", row["status"])
	assert.Nil(t, row["ends"], "a reopening clears")
	row = one(failed, told(4, "d", thing{Open: true}), told(5, "e", thing{Ends: "DONE"}))
	assert.Equal(t, "DONE", row["status"])
	assert.Equal(t, "DONE", row["ends"])
	row = one(told(1, "a", thing{Pair: true, Left: "l", Right: "r"}), told(2, "b", thing{Pair: true, Left: "m"}))
	assert.Equal(t, []any{"m", nil}, []any{row["left_"], row["right_"]}, "what belongs together comes from one event")
	row = one(told(1, "a", thing{Word: "old", Number: number(0)}), told(2, "b", thing{Number: number(-7)}))
	assert.Equal(t, []any{"old", 0.0, -7.0}, []any{row["word"], row["top"], row["least_"]}, "null says nothing, 0 does")
}

func TestAnEventFromTheFutureIsFlaggedAndDoesNotWinForEver(t *testing.T) {
	t.Parallel()
	pool := thingsDatabase(t)
	ahead := told(0, "a", thing{Word: "ahead"})
	ahead = retimed(ahead, start.AddDate(50, 0, 0))
	rows := projectionstest.Converge(t, pool, things(), []topics.Record{ahead, told(60, "b", thing{Word: "soon"})})
	assert.Equal(t, "ahead", rows["things"][0]["word"], "it ranks five minutes after the broker's time")
	assert.Equal(t, true, rows["things"][0]["events_future"])
	rows = projectionstest.Converge(t, pool, things(), []topics.Record{ahead, told(301, "b", thing{Word: "later"})})
	assert.Equal(t, "later", rows["things"][0]["word"])
}

// retimed is the record with another time in its event.
func retimed(r topics.Record, at time.Time) topics.Record {
	env, _ := topics.DecodeRecord(r)
	env.Time = at
	out := env.Record(r.Topic, r.Key)
	out.Timestamp = r.Timestamp
	return out
}

func TestARowOfWhichOnlyItsPartsAreKnownIsAPlaceholder(t *testing.T) {
	t.Parallel()
	pool := thingsDatabase(t)
	rows := projectionstest.Converge(t, pool, things(), []topics.Record{told(1, "a", thing{Part: 1})})
	require.Len(t, rows["parents"], 1)
	assert.Nil(t, rows["parents"][0]["title"])
}

func TestRepetitionsWriteNothing(t *testing.T) {
	t.Parallel()
	pool := thingsDatabase(t)
	history := []topics.Record{told(1, "a", thing{Active: "CREATED", Word: "w", Doc: json.RawMessage(`1`)}), told(2, "b", thing{Ends: "DONE"})}
	apply := func() (written int64) {
		b := things().NewBatch()
		for _, r := range history {
			require.NoError(t, b.Add(r))
		}
		counted := &counting{Execer: pool}
		require.NoError(t, b.Merge(t.Context(), counted, nil))
		return counted.rows
	}
	assert.EqualValues(t, 2, apply())
	assert.Zero(t, apply())
}

func TestAFaultIsTheRecordsOwn(t *testing.T) {
	t.Parallel()
	b := things().NewBatch()
	long := told(1, "a", thing{})
	env, _ := topics.DecodeRecord(long)
	env.Subject = ""
	for name, r := range map[string]topics.Record{
		"apply refuses": told(1, "a", thing{Fault: true}), "no event": {Topic: "things", Value: []byte("x")},
		"no key": env.Record("things", nil),
	} {
		err := b.Add(r)
		require.Error(t, err, name)
		assert.Equal(t, middleware.MessageFault, middleware.Classifier{}.Classify(t.Context(), err), name)
	}
	assert.Zero(t, b.Rows())
}

func TestTableAndDeclarationAgree(t *testing.T) {
	t.Parallel()
	pool := database(t)
	for _, p := range projections.All() {
		for _, table := range p.Tables {
			rows, err := pool.Query(t.Context(), `SELECT column_name FROM information_schema.columns
				WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER'`, table.Name())
			require.NoError(t, err)
			there, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			want := []string{"created_at", "updated_at"}
			for _, c := range table.Columns() {
				want = append(want, c.Name())
				if c.Rule() != projections.Placed {
					assert.NotEmpty(t, c.Doc(), "%s.%s", table.Name(), c.Name())
				}
			}
			assert.ElementsMatch(t, want, there, "columns of %s that events decide", table.Name())
		}
	}
}
