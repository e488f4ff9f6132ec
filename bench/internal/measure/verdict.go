package measure

import "fmt"

// Verdict says whether a figure is what was aimed at.
type Verdict struct {
	// Met is true when it is.
	Met bool `json:"met"`
	// Text names the figure and the target.
	Text string `json:"text"`
}

// Judge returns a verdict with a text as of fmt.Sprintf.
func Judge(met bool, format string, args ...any) Verdict {
	return Verdict{Met: met, Text: fmt.Sprintf(format, args...)}
}

// String is the verdict in one line.
func (v Verdict) String() string {
	if v.Met {
		return "MET: " + v.Text
	}
	return "MISSED: " + v.Text
}
