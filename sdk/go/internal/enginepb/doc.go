// Package enginepb is generated from api/proto/workflow/v1/engine.proto by `make proto-gen`.
//
// It is the wire contract under another name. A program may have this package, and at the
// same time the engine's own or that of another SDK for the same contract; protobuf keeps
// one registry of files and messages per program and panics when two bring the same. On
// the wire there is no difference: only the paths of calls have the name of the contract,
// and these are written out where they are used.
package enginepb
