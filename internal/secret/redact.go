package secret

import "regexp"

// The shapes in which error texts give secrets away: the user part of a URL, and
// the value behind a name that says what it is.
var (
	urlPassword = regexp.MustCompile(`(\w+://[^\s:/@]*):[^\s@/]+@`)
	namedSecret = regexp.MustCompile(`(?i)\b((?:[a-z0-9_-]*)(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&"'}]+)`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}`)
)

// Redact replaces what looks like a secret in a text that others wrote, such as
// an error's. It is a second line: whoever holds a secret should not put it into an
// error in the first place.
func Redact(text string) string {
	text = urlPassword.ReplaceAllString(text, "${1}:"+Redacted+"@")
	text = bearer.ReplaceAllString(text, "${1} "+Redacted)
	return namedSecret.ReplaceAllString(text, "${1}"+Redacted)
}
