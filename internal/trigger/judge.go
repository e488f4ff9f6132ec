package trigger

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// Check reads a definition that is written as JSON, and says all that is wrong with it:
// with its shape, and as far as it could be read all else (Compile).
func Check(raw []byte, d Defaults) (Definition, []Fault) {
	definition, faults := Decode(raw)
	if len(faults) == 0 {
		_, faults = Compile(Stored{Definition: definition}, d)
		return definition, faults
	}
	if !readable(raw, &definition) {
		return definition, faults
	}
	_, further := Compile(Stored{Definition: definition}, d)
	for _, f := range further {
		if !f.Warning && !follows(f, faults) {
			faults = append(faults, f)
		}
	}
	return definition, faults
}

// readable reads what can be read of a definition with faults of shape. It is false where
// the reading ended before the end.
func readable(raw []byte, into *Definition) bool {
	err := json.Unmarshal(raw, into)
	if err == nil {
		return true
	}
	// Of a value of another type the rest is read all the same.
	_, other := errors.AsType[*json.UnmarshalTypeError](err)
	return other
}

// follows says whether a fault is but the consequence of one of those of shape: of a value
// that could not be read, or of a field that has another name.
func follows(f Fault, shape []Fault) bool {
	parent := func(pointer string) string { return pointer[:max(strings.LastIndexByte(pointer, '/'), 0)] }
	return slices.ContainsFunc(shape, func(s Fault) bool {
		switch {
		case s.Pointer == f.Pointer || strings.HasPrefix(f.Pointer, s.Pointer+"/"):
			return true
		case s.Code == CodeUnknown:
			return f.Code == CodeRequired && (parent(s.Pointer) == parent(f.Pointer) || parent(s.Pointer) == f.Pointer)
		}
		// What stands below may be missing in it.
		return strings.HasPrefix(s.Pointer, f.Pointer+"/") && f.Code == CodeRequired
	})
}
