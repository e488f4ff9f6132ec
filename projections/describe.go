package projections

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Version identifies the declaration: it changes when a table, a column or a rule does,
// and then a rebuild brings old rows in line.
func (p Projection) Version() string {
	var s strings.Builder
	for _, t := range p.Tables {
		for _, c := range t.Columns() {
			fmt.Fprintf(&s, "%s.%s %s %s %s\n", t.name, c.name, c.sqlType(), c.rule, c.registerName())
		}
	}
	sum := sha256.Sum256([]byte(s.String()))
	return hex.EncodeToString(sum[:6])
}

func (c *Column) registerName() string {
	if c.register == nil {
		return ""
	}
	return c.register.mark.name
}

// meanings says in a phrase what each rule does, for Markdown.
func (c *Column) meaning() string {
	switch c.rule {
	case Key:
		return "key"
	case Once:
		return "of the one event that brings it"
	case First:
		return "first: of the earliest event that brings one"
	case Last:
		return "last: of the latest event that brings one"
	case Together:
		return "of the latest event that speaks of it (`" + c.registerName() + "`)"
	case Highest:
		return "highest"
	case Lowest:
		return "lowest"
	case Merge:
		return "merged: the latest entry under each name"
	default:
		return ""
	}
}

// Markdown describes the read models of the projection for people: every column with
// its meaning and its rule, without the marks.
func (p Projection) Markdown() string {
	var s strings.Builder
	for _, t := range p.Tables {
		fmt.Fprintf(&s, "### `%s`\n\nBuilt by the consumer `%s` from `%s`. %s\n\n", t.name, p.Name, p.Topic, t.order)
		s.WriteString("| column | means | rule |\n|---|---|---|\n")
		for _, c := range t.Columns() {
			if c.rule != Placed {
				fmt.Fprintf(&s, "| `%s` | %s | %s |\n", c.name, c.doc, c.meaning())
			}
		}
		s.WriteString("\n")
	}
	return s.String()
}

// String says in a sentence what comes later, for people.
func (o Order) String() string {
	switch o {
	case ByVersion:
		return "Which of two events is later, the version of their aggregate says."
	case ByTime:
		return "Which of two events is later, their times say, and if these are equal their identities."
	default:
		return "Which of two events is later, the version says where Millrace wrote them, else their times and identities."
	}
}
