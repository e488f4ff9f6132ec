package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
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
