// Package build knows which version of Millrace this is.
package build

import (
	"cmp"
	"runtime/debug"
)

// version is set when a release is built, by the linker:
//
//	-ldflags "-X github.com/millrace/millrace/internal/build.version=v1.2.3"
var version string

// Version returns the version of this program: what the linker was told, else what
// the Go toolchain recorded (a tag or a pseudo version of the commit), else
// "(devel)".
func Version() string {
	recorded := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		recorded = info.Main.Version
	}
	return cmp.Or(version, recorded, "(devel)")
}
