package e2e

import (
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/client"
	"github.com/millrace/millrace/internal/crash"
)

// rebuilt is the projection that is rebuilt when the process dies.
const rebuilt = "executions-view"

func ofRebuilds(point crash.Point) bool { return strings.HasPrefix(point.Name, "rebuild.") }

// rebuild asks once for a rebuild of the view of executions, one of whose rows is
// damaged. Of the time before 1970 the log says that it has dropped it, so that it is
// looked for rows to carry over.
func (c *crasher) rebuild(point crash.Point, api *client.Client) error {
	t, in := c.in.t, c.in
	if in.count(`SELECT count(*) FROM projection_rebuilds WHERE reason = '`+point.Name+`'`) > 0 {
		return nil
	}
	c.in.await("there is a history", func() bool {
		return in.count(`SELECT count(*) FROM execution_views`) > 0 &&
			in.count(`SELECT count(*) FROM consumer_offsets WHERE consumer_group = 'millrace-recorder' AND next_offset > 0`) > 0
	})
	_, err := in.db.Exec(t.Context(), `UPDATE event_log_topics SET dropped_before = '1970-01-01Z' WHERE dropped_before IS NULL`)
	require.NoError(t, err)
	_, err = in.db.Exec(t.Context(), `UPDATE execution_views SET labels = '{"damaged": "yes"}' WHERE id = (SELECT min(id) FROM execution_views)`)
	require.NoError(t, err)
	_, err = api.StartRebuild(t.Context(), rebuilt, client.NewRebuild{Reason: point.Name})
	return err
}

// judgeRebuild checks that the rebuild has ended well, has mended what was damaged,
// and has left nothing behind.
func (c *crasher) judgeRebuild(point crash.Point) {
	t, in := c.in.t, c.in
	c.in.await("the rebuild is done", func() bool {
		return in.count(`SELECT count(*) FROM projection_rebuilds WHERE state = 'DONE' AND reason = '`+point.Name+`'`) == 1
	})
	assert.Zero(t, in.count(`SELECT count(*) FROM execution_views WHERE labels ? 'damaged'`))
	assert.Empty(t, in.texts(`SELECT relname::text FROM pg_class WHERE relname LIKE '%\_\_rebuild'`))
}
