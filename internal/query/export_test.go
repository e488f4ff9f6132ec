package query

import "encoding/json"

// CheckPlace reads the place of a cursor of a list by start and id.
func CheckPlace(first, second string) error {
	for i, raw := range []string{first, second} {
		f := []Field{timeField("start", ""), required(textField("id", ""))}[i]
		if _, err := parsePlace(json.RawMessage(raw), f); err != nil {
			return err
		}
	}
	return nil
}
