package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/millrace/millrace/middleware"
)

// maxNormalBytes is how much of a normalised error counts: what is behind it is
// often a dump of the record.
const maxNormalBytes = 512

var (
	ids     = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	hexes   = regexp.MustCompile(`\b(0x[0-9a-fA-F]+|[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}|[0-9a-fA-F]{7,}[0-9][0-9a-fA-F]*)\b`)
	numbers = regexp.MustCompile(`[0-9]+`)
)

// Fingerprint returns what letters that failed for the same reason have in
// common: a hash of the consumer, the class, and the error without what differs
// from record to record (ids, hexadecimal strings, numbers, white space). It is
// stored, so another way of computing it begins new groups.
func Fingerprint(l *middleware.Letter) string {
	sum := sha256.Sum256([]byte(l.Consumer + "\x00" + l.Class.String() + "\x00" + normalise(l.Reason)))
	return hex.EncodeToString(sum[:8])
}

// normalise works on the reason, which is the part of the error's text that every
// way of filing a letter has.
func normalise(text string) string {
	text = ids.ReplaceAllString(text, "#")
	text = hexes.ReplaceAllString(text, "#")
	text = numbers.ReplaceAllString(text, "#")
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), maxNormalBytes)]
}
