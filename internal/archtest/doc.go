// Package archtest holds the rules of the architecture as tests: who may import
// whom, that every package has a doc, and that files stay short. It has no code of
// its own. The rules and their reasons are in docs/architecture.md.
package archtest
