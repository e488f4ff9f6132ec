//go:build race

package e2e

// raceDetector says whether this binary, and so the one under test, is built with
// the race detector.
const raceDetector = true
