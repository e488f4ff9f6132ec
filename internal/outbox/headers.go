package outbox

import (
	"encoding/binary"
	"errors"

	"github.com/millrace/millrace/topics"
)

// headersVersion is the first byte of encoded headers.
const headersVersion = 1

var errHeaders = errors.New("decode headers: malformed")

// EncodeHeaders writes headers as the column of that name holds them: a version
// byte (1), then for each header the length of its name (4 bytes, big-endian), the
// name, the length of its value (-1 for null) and the value. That keeps order,
// repeated names, arbitrary bytes and the difference between null and empty, which
// jsonb does not, and SQL can write it: int4send(octet_length(v)) || v.
func EncodeHeaders(headers []topics.Header) []byte {
	size := 1
	for _, h := range headers {
		size += 8 + len(h.Key) + len(h.Value)
	}
	b := append(make([]byte, 0, size), headersVersion)
	for _, h := range headers {
		b = binary.BigEndian.AppendUint32(b, uint32(len(h.Key)))
		b = append(b, h.Key...)
		if h.Value == nil {
			b = binary.BigEndian.AppendUint32(b, ^uint32(0))
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(h.Value)))
		b = append(b, h.Value...)
	}
	return b
}

// DecodeHeaders reads what EncodeHeaders wrote. Values share memory with b.
func DecodeHeaders(b []byte) ([]topics.Header, error) {
	if len(b) == 0 || b[0] != headersVersion {
		return nil, errHeaders
	}
	b = b[1:]
	var headers []topics.Header
	for len(b) > 0 {
		name, rest, ok := cutField(b)
		if !ok || name == nil {
			return nil, errHeaders
		}
		value, rest, ok := cutField(rest)
		if !ok {
			return nil, errHeaders
		}
		headers = append(headers, topics.Header{Key: string(name), Value: value})
		b = rest
	}
	return headers, nil
}

// cutField takes one length and its bytes off b. The field is nil for length -1.
func cutField(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n, b := binary.BigEndian.Uint32(b), b[4:]
	if n == ^uint32(0) {
		return nil, b, true
	}
	if uint64(n) > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}
