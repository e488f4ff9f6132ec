package rebuild

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

const (
	// shadowSuffix ends the names of shadow tables and of their indexes.
	shadowSuffix = "__rebuild"
	// replacedSuffix ends those of tables that were replaced and are kept for a while.
	replacedSuffix = "__replaced"
	// maxIdentifier is how many bytes PostgreSQL keeps of a name.
	maxIdentifier = 63
)

// shadowOf is the name that a table, an index or a constraint has in the shadow.
func shadowOf(name string) string { return suffixed(name, shadowSuffix) }

// replacedOf is the name that it has when it was replaced.
func replacedOf(name string) string { return suffixed(name, replacedSuffix) }

// suffixed adds a suffix to a name. One that becomes too long is cut, and a hash keeps
// it apart from others that begin alike.
func suffixed(name, suffix string) string {
	if len(name)+len(suffix) <= maxIdentifier {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	hash := "_" + hex.EncodeToString(sum[:6])
	cut := maxIdentifier - len(suffix) - len(hash)
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + hash + suffix
}

// quote makes an identifier of a name.
func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
