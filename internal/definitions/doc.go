// Package definitions keeps the definitions of workflows and sagas: every version of
// each, as it was written, and the plans compiled from them.
//
// # Versions
//
// A definition that is put has the version after the latest of its id, from 1. One that
// says the same as the latest is that version: what counts is the JSON without insignificant
// space and without a version in it, so a deployment may put all its definitions each
// time. Two that are put at once get two versions. Versions are never changed or deleted,
// and an instance keeps the one that it was started with.
//
// # The latest
//
// A process remembers which version is the latest for Freshness, and forgets it when
// another process puts one (signal "definitions"). So an instance that is started
// right after its definition was put in another process may, if that signal is lost, still
// get the version before; the process that put it knows at once.
package definitions
