package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// MarshalJSON writes the branches as an object, in their order.
func (b Branches) MarshalJSON() ([]byte, error) {
	return marshalOrdered(len(b), func(i int) (string, any) { return b[i].Expression, b[i].Step })
}

// UnmarshalJSON reads the branches in the order in which they are written.
func (b *Branches) UnmarshalJSON(text []byte) error {
	*b = nil
	return unmarshalOrdered(text, func(name string, value json.RawMessage) error {
		var step string
		if err := json.Unmarshal(value, &step); err != nil {
			return fmt.Errorf("branch %q: the target is no string", name)
		}
		*b = append(*b, Branch{Expression: name, Step: step})
		return nil
	})
}

// MarshalJSON writes the assignments as an object, in their order.
func (a Assignments) MarshalJSON() ([]byte, error) {
	return marshalOrdered(len(a), func(i int) (string, any) { return a[i].Variable, a[i].Value })
}

// UnmarshalJSON reads the assignments in the order in which they are written.
func (a *Assignments) UnmarshalJSON(text []byte) error {
	*a = nil
	return unmarshalOrdered(text, func(name string, value json.RawMessage) error {
		*a = append(*a, Assignment{Variable: name, Value: value})
		return nil
	})
}

func marshalOrdered(n int, member func(int) (string, any)) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	out.WriteByte('{')
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		name, value := member(i)
		if err := encoder.Encode(name); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := encoder.Encode(value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// unmarshalOrdered calls member for each member of an object, in the order written.
// Nothing is called for null.
func unmarshalOrdered(text []byte, member func(string, json.RawMessage) error) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	token, err := decoder.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('{') {
		return fmt.Errorf("an object is wanted, not %v", token)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		if err := member(fmt.Sprint(name), value); err != nil {
			return err
		}
	}
	return nil
}

// WithVersion returns the text of a definition, without insignificant space, with its
// version set; 0 takes the version out, as it is in what people write. All else is as it is
// in the text, in its order.
func WithVersion(text []byte, version int) ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	put := func(name string, value []byte) error {
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		quoted, err := json.Marshal(name)
		out.Write(quoted)
		out.WriteByte(':')
		out.Write(value)
		return err
	}
	placed := version == 0
	err := unmarshalOrdered(bytes.TrimPrefix(text, byteOrderMark), func(name string, value json.RawMessage) error {
		if strings.EqualFold(name, "version") {
			return nil
		}
		if err := put(name, value); err != nil || placed || !strings.EqualFold(name, "id") {
			return err
		}
		placed = true
		return put("version", strconv.AppendInt(nil, int64(version), 10))
	})
	if err == nil && !placed {
		err = put("version", strconv.AppendInt(nil, int64(version), 10))
	}
	if err != nil {
		return nil, fmt.Errorf("set the version of a definition: %w", err)
	}
	out.WriteByte('}')
	var compact bytes.Buffer
	if err := json.Compact(&compact, out.Bytes()); err != nil {
		return nil, fmt.Errorf("set the version of a definition: %w", err)
	}
	return compact.Bytes(), nil
}
