package kubernetes

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/distribution/reference"
)

// imagePattern is a pattern of images. In a pattern * stands for any letters but a slash
// and ** for any letters. What is left out means what it means in the name of an image:
// python is docker.io/library/python. A pattern without a tag and digest allows all of
// them; one with a tag allows that tag, and not what names a digest beside it, because
// then nobody looks at the tag.
type imagePattern struct {
	name *regexp.Regexp
	// tag and digest are nil where the pattern has none.
	tag, digest *regexp.Regexp
}

func parseImagePattern(text string) (imagePattern, error) {
	if text == "" || strings.ContainsAny(text, " \t\n") {
		return imagePattern{}, fmt.Errorf("%q is no pattern of images: want one such as python:3.*, docker.io/library/* or ghcr.io/acme/**", text)
	}
	name, digest, hasDigest := strings.Cut(text, "@")
	tag, hasTag := "", false
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, tag, hasTag = name[:colon], name[colon+1:], true
	}
	if name == "" || hasTag && tag == "" || hasDigest && digest == "" {
		return imagePattern{}, fmt.Errorf("%q is no pattern of images: its name, its tag or its digest is empty", text)
	}
	if name != "**" {
		name = qualified(name)
	}
	p := imagePattern{name: globs(name)}
	if hasTag {
		p.tag = globs(tag)
	}
	if hasDigest {
		p.digest = globs(digest)
	}
	return p, nil
}

// qualified adds what the name of an image may leave out, as reference.ParseNormalizedNamed
// does, which does not take patterns.
func qualified(name string) string {
	domain, _, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return "docker.io/library/" + name
	case !strings.ContainsAny(domain, ".:*") && domain != "localhost" && strings.ToLower(domain) == domain:
		return "docker.io/" + name
	case domain == "index.docker.io":
		return strings.Replace(name, domain, "docker.io", 1)
	default:
		return name
	}
}

// globs makes a regular expression of a pattern.
func globs(pattern string) *regexp.Regexp {
	var b strings.Builder
	for i, anything := range strings.Split(pattern, "**") {
		if i > 0 {
			b.WriteString(".*")
		}
		for j, literal := range strings.Split(anything, "*") {
			if j > 0 {
				b.WriteString("[^/]*")
			}
			b.WriteString(regexp.QuoteMeta(literal))
		}
	}
	return regexp.MustCompile("^(?:" + b.String() + ")$")
}

// allows says whether an image, by its full name, matches.
func (p imagePattern) allows(image reference.Named) bool {
	if !p.name.MatchString(image.Name()) {
		return false
	}
	digested, isDigested := image.(reference.Digested)
	if p.digest != nil && (!isDigested || !p.digest.MatchString(digested.Digest().String())) {
		return false
	}
	if p.tag == nil {
		return true
	}
	tagged, isTagged := reference.TagNameOnly(image).(reference.Tagged)
	return isTagged && p.tag.MatchString(tagged.Tag()) && (!isDigested || p.digest != nil)
}
