// Package secret holds text that must not be seen: passwords, tokens, data
// source names. Whatever prints, logs or encodes a Secret sees three asterisks;
// only Reveal gives the text away, so that every use can be found by its name.
package secret

import "log/slog"

// Redacted is what stands for a secret that is set.
const Redacted = "***"

// Secret is a text that hides itself. The zero value is "not set" and prints as
// the empty text, so that a missing secret can be told from a hidden one. It can
// be compared with ==, which is not constant in time: compare what callers send
// with crypto/subtle.
type Secret struct{ text string }

// New returns a Secret that hides text.
func New(text string) Secret { return Secret{text: text} }

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// IsZero says that no secret is set. Encoders leave it out for "omitzero".
func (s Secret) IsZero() bool { return s.text == "" }

// String implements fmt.Stringer without giving the text away.
func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return Redacted
}

// GoString implements fmt.GoStringer, for %#v.
func (s Secret) GoString() string { return "secret.New(" + s.String() + ")" }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler. encoding/json uses it as well.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML implements the Marshaler of the YAML packages.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// UnmarshalText implements encoding.TextUnmarshaler: it takes the text as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	s.text = string(text)
	return nil
}
