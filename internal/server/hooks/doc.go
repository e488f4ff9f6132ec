// Package hooks receives webhooks: POST /hooks/{id} of the API's listener. It is the source of
// triggers of type webhook, and has no members: every process that serves the API receives.
//
// # A request
//
// The trigger is looked up in memory; one that there is not, one that is disabled and one of
// another type are answered alike, on one path. What a header proves (bearer, basic) is
// checked before the body is read, a signature after that, in constant time and with every
// secret. Only then does a request cost a query: a token of its rate, and the transaction that
// makes its target. It is answered after the commit, so a request that is answered with 2xx is
// never lost, and one that is not may be sent again.
//
// # Once
//
// A repetition is told by the id of its CloudEvent, by a header or by a part of the body, and
// answered with the target of the first. A signature over a timestamp is good once, and within
// its window: what it has signed is a nonce, whatever the headers beside it say.
//
// # Gathering
//
// Each hook has one queue, and at most one transaction at a time. While it is under way others
// gather for the next one. So a flood at one hook costs one connection to the database, as
// much memory as Config says, and no other hook anything. The order of arrival is kept within
// a process; callers that need order have to wait for the answer.
//
// # Crash
//
// What was not answered may be stored or not. A sender that repeats it under the same identity
// finds what was made of it.
package hooks
