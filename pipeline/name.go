package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/millrace/millrace/topics"
)

var notInNames = regexp.MustCompile(`[^a-z0-9._-]+`)

// maxTopicInName leaves room for the rest of a consumer's name.
const maxTopicInName = 70

// NameOf returns the name of the consumer that does for a topic what the consumer
// base does for another one: "<base>.<topic>". It is the same for ever, as a consumer's
// name must be. A topic whose name has to be changed for that (capitals, length) gets
// something of its own, so that no two topics share a name.
func NameOf(base string, topic topics.Topic) string {
	name := notInNames.ReplaceAllString(strings.ToLower(string(topic)), "-")
	name = name[:min(len(name), maxTopicInName)]
	if name != string(topic) {
		sum := sha256.Sum256([]byte(topic))
		name += "." + hex.EncodeToString(sum[:4])
	}
	return base + "." + name
}
