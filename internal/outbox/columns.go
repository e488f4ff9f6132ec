package outbox

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/millrace/millrace/topics"
)

// columns are entries as one array per column.
type columns struct {
	ids                                              [][16]byte
	shards                                           []int16
	aggregateTypes, aggregateIDs, eventTypes, topics []string
	keys, payloads, headers                          [][]byte
	records                                          []topics.Record
}

// columnsOf validates entries on the way; an error names the first that is bad.
func columnsOf(entries []Entry) (columns, error) {
	n := len(entries)
	c := columns{
		ids: make([][16]byte, n), shards: make([]int16, n),
		aggregateTypes: make([]string, n), aggregateIDs: make([]string, n), eventTypes: make([]string, n), topics: make([]string, n),
		keys: make([][]byte, n), payloads: make([][]byte, n), headers: make([][]byte, n),
		records: make([]topics.Record, n),
	}
	for i, e := range entries {
		if err := e.validate(); err != nil {
			return columns{}, fmt.Errorf("entry %d: %w", i, err)
		}
		id, err := e.rowID()
		if err != nil {
			return columns{}, fmt.Errorf("entry %d: %w", i, err)
		}
		r := e.record()
		c.ids[i], c.shards[i] = id, int16(ShardOf(e.AggregateID))
		c.aggregateTypes[i], c.aggregateIDs[i] = e.AggregateType, e.AggregateID
		// For people only, and perhaps of a foreign record, which is not to blame.
		c.eventTypes[i], c.topics[i] = storable(e.Envelope.Type), string(e.Topic)
		c.records[i] = r
		c.keys[i], c.payloads[i], c.headers[i] = r.Key, r.Value, EncodeHeaders(r.Headers)
	}
	return c, nil
}

func uuidText(id [16]byte) string { return uuid.UUID(id).String() }

// arrays are the arguments of appendSQL as pgx sends them: in binary.
func (c columns) arrays(buckets []int32) []any {
	return []any{
		c.ids, c.shards, c.aggregateTypes, c.aggregateIDs, c.eventTypes, c.topics, c.keys, c.payloads, c.headers,
		lockClass, buckets,
	}
}

// texts are the same as PostgreSQL's texts of arrays, which every driver can send.
// Bytes take twice the room that way.
func (c columns) texts(buckets []int32) []any {
	return []any{
		arrayText(c.ids, func(b []byte, id [16]byte) []byte { return append(b, uuid.UUID(id).String()...) }),
		arrayText(c.shards, func(b []byte, n int16) []byte { return strconv.AppendInt(b, int64(n), 10) }),
		arrayText(c.aggregateTypes, appendQuoted), arrayText(c.aggregateIDs, appendQuoted),
		arrayText(c.eventTypes, appendQuoted), arrayText(c.topics, appendQuoted),
		arrayText(c.keys, appendBytea), arrayText(c.payloads, appendBytea), arrayText(c.headers, appendBytea),
		strconv.Itoa(lockClass), arrayText(buckets, func(b []byte, n int32) []byte { return strconv.AppendInt(b, int64(n), 10) }),
	}
}

func arrayText[T any](elements []T, element func([]byte, T) []byte) string {
	b := []byte{'{'}
	for i, e := range elements {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(b, e)
	}
	return string(append(b, '}'))
}

// quote escapes what has a meaning inside of quotes in the text of an array.
var quote = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func appendQuoted(b []byte, s string) []byte {
	return append(append(append(b, '"'), quote.Replace(s)...), '"')
}

func appendBytea(b, value []byte) []byte {
	if value == nil {
		return append(b, "NULL"...)
	}
	return append(hex.AppendEncode(append(b, `"\\x`...), value), '"')
}
