package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Number returns a number of JSON as expressions calculate with it: an int, or a float64. An
// integer that no int holds stays as it is: it can be compared with its like and handed on,
// not calculated with.
func Number(n json.Number) any {
	if i, err := n.Int64(); err == nil {
		return int(i)
	}
	if strings.ContainsAny(n.String(), ".eE") {
		if f, err := n.Float64(); err == nil {
			return f
		}
	}
	return n
}

// Storable returns what an expression gave as JSON can hold it: objects have texts as keys,
// numbers are finite. The error says what cannot be held.
func Storable(value any) (any, error) {
	switch v := value.(type) {
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, errors.New("the result is no number (a division by zero?)")
		}
	case []any:
		return storableList(v)
	case map[string]any:
		made := make(map[string]any, len(v))
		for key, element := range v {
			var err error
			if made[key], err = Storable(element); err != nil {
				return nil, err
			}
		}
		return made, nil
	case map[any][]any: // what groupBy makes
		made := make(map[string]any, len(v))
		for key, list := range v {
			var err error
			if made[fmt.Sprint(key)], err = storableList(list); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
	return value, nil
}

func storableList(list []any) (any, error) {
	made := make([]any, len(list))
	for i, element := range list {
		var err error
		if made[i], err = Storable(element); err != nil {
			return nil, err
		}
	}
	return made, nil
}
