package topics

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Hostile input of a mebibyte must not cost a multiple without bound. The test is
// not parallel: it reads the allocations of the whole process.
func TestDecodingAllocatesInProportion(t *testing.T) {
	const size = 1 << 20
	fill := func(unit string) string { return strings.Repeat(unit, size/len(unit)) }
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	requested := func(data string) func() {
		return func() { _, _ = DecodeEvent(Envelope{Type: "millrace.execution.requested.v1", Data: []byte(data)}) }
	}
	headers := make([]Header, 0, size/16)
	for range cap(headers) {
		headers = append(headers, Header{"x", []byte("y")})
	}
	for name, f := range map[string]func(){
		"brackets":             requested(fill("[")),
		"objects":              requested(fill(`{"request":`)),
		"bad labels":           requested(`{"request":{"labels":{` + strings.TrimSuffix(manyMembers(size), ",") + `}}}`),
		"unknown members":      requested(`{` + strings.TrimSuffix(manyMembers(size), ",") + `}`),
		"small values":         requested(`{"request":{"spec":[` + fill("0,") + `0]}}`),
		"structured brackets":  func() { _, _ = DecodeJSON([]byte(`{"data":` + fill("["))) },
		"structured members":   func() { _, _ = DecodeJSON([]byte(`{` + manyMembers(size))) },
		"batch of tiny events": func() { _, _ = DecodeBatchJSON([]byte("[" + fill(structuredMinimal+"},"))) },
		"many headers":         func() { _, _ = DecodeRecord(Record{Headers: headers}) },
	} {
		n := allocated(f)
		t.Logf("%s: %.1f bytes per byte", name, float64(n)/size)
		assert.Less(t, n, uint64(200*size), name)
	}
}

// manyMembers returns size bytes of members with names that differ.
func manyMembers(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		b.WriteString(`"`)
		for n := i; ; n /= 26 {
			b.WriteByte(byte('a' + n%26))
			if n < 26 {
				break
			}
		}
		b.WriteString(`_":7,`)
	}
	return b.String()
}
