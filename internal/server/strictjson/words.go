package strictjson

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// describe turns the error of a type's own decoding into words for the caller.
func describe(t reflect.Type, err error) string {
	if t == reflect.TypeFor[time.Time]() {
		return "must be a time as in RFC 3339, such as 2026-01-02T15:04:05Z"
	}
	text := err.Error()
	if _, after, found := strings.Cut(text, ": "); found {
		return after
	}
	return text
}

// suggestion names the known field that was probably meant, as ": did you mean
// x?", or returns "".
func suggestion(name string, fields map[string]reflect.Type) string {
	best, distance := "", 3
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if d := editDistance(strings.ToLower(name), field, distance); d < distance {
			best, distance = field, d
		}
	}
	if best == "" {
		best = completion(name, fields)
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// completion returns the one known field that begins with name, or "".
func completion(name string, fields map[string]reflect.Type) string {
	found := ""
	for field := range fields {
		switch {
		case len(name) < 4 || !strings.HasPrefix(field, strings.ToLower(name)+"_"):
		case found != "":
			return ""
		default:
			found = field
		}
	}
	return found
}

// editDistance counts the letters to insert, delete or change between a and b.
// Names whose lengths differ by limit or more are not compared.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
