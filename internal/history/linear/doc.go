// Package linear checks what concurrent clients of the executions were told against
// two small sequential models, with porcupine: whatever happened at the same time,
// there must be an order in which all answers make sense.
//
//   - Lease: one execution, from submit to its end. An attempt is admitted once and
//     has one holder; the attempt, which is the fencing token, only rises; reports of
//     anybody but the holder are refused; the holder's report is accepted once, also
//     after its lease has run out, as long as nobody took the execution over.
//   - Capacity: one resource class. What is admitted was not admitted already and
//     fits beside what is in use; what is freed was in use, so that it is freed once;
//     the token of the admitter only rises.
//
// # Recording
//
// A Recorder notes when each call was made and when its answer came. An answer that
// never came (a commit in doubt) is noted as Unknown: its effect may come at any
// time after the call, or never.
//
// Lease histories are checked execution by execution, so the cost grows with the
// number of executions and not with the length of the history.
package linear
