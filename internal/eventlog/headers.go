package eventlog

import (
	"encoding/binary"
	"errors"

	"github.com/millrace/millrace/topics"
)

var errHeaders = errors.New("stored headers are damaged")

// EncodeHeaders writes headers so that they come back byte for byte: their
// order, repeated names, any bytes, and the difference between an empty and a nil
// value. The format is a sequence of name and value, each a length as uvarint and
// the bytes; the length of a value is one more than its bytes, 0 for nil.
func EncodeHeaders(headers []topics.Header) []byte {
	size := 0
	for _, h := range headers {
		size += len(h.Key) + len(h.Value) + 2*binary.MaxVarintLen16
	}
	b := make([]byte, 0, size)
	for _, h := range headers {
		b = binary.AppendUvarint(b, uint64(len(h.Key)))
		b = append(b, h.Key...)
		if h.Value == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(h.Value))+1)
		b = append(b, h.Value...)
	}
	return b
}

// DecodeHeaders reads what EncodeHeaders wrote. The result shares no memory with
// b. It fails, without allocating more than b is long, on anything else.
func DecodeHeaders(b []byte) ([]topics.Header, error) {
	var headers []topics.Header
	for len(b) > 0 {
		name, rest, ok := cut(b, 0)
		if !ok {
			return nil, errHeaders
		}
		value, rest, ok := cut(rest, 1)
		if !ok {
			return nil, errHeaders
		}
		h := topics.Header{Key: string(name)}
		if value != nil {
			h.Value = append([]byte{}, value...)
		}
		headers, b = append(headers, h), rest
	}
	return headers, nil
}

// cut reads a length, less by bias, and so many bytes. A length below the bias
// stands for nil.
func cut(b []byte, bias uint64) (piece, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, false
	}
	b = b[n:]
	if length < bias {
		return nil, b, true
	}
	length -= bias
	if length > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:length:length], b[length:], true
}
