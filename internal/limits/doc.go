// Package limits says which limits an execution is under and when a bucket has a
// token. It is pure: it reads no clock, no file and no database. Who spends tokens
// keeps one number per limit and key, and gives it to Take under a lock.
//
//	set, err := limits.Compile([]limits.Definition{{
//		Name: "team", Per: limits.PerKey, Key: `labels.team`,
//		Rate: limits.Rate{Tokens: 5, Per: time.Minute}, Concurrency: 2,
//	}})
//	keys, err := set.Keys(ctx, request) // [{team blue}]
//
// # Keys
//
// A limit counts per key, and a request that has the key is under the limit. The
// key of a limit per user is the tenant and the user, that of one per tenant the
// tenant, and that of one per key what its expression gives. An expression that
// gives nothing or an empty text takes the request out of the limit. The same
// request always has the same keys.
//
// Expressions (`key` and `when`) are those of package internal/expr, over the
// request as it was stored, with its defaults filled in, under the names of its
// JSON form:
//
//	tenant, user, executor, resource_class, concurrency_key   text
//	priority                                                  1 to 5
//	labels                                                    text by name
//	origin.kind, origin.trigger                               text
//	requirements.slots, .cpu_millis, .memory_bytes, .gpus     numbers
//
// A label that the request does not have is an empty text. An evaluation may take
// MaxSteps; a request for which it takes more is refused (KeyError).
//
// # Exactness
//
// A bucket is one time: when it will be full again (the "theoretical arrival time"
// of the generic cell rate algorithm). Taking a token moves it on by the emission
// interval, the duration of one token rounded up to a whole nanosecond. So in every
// window of length t at most burst + rate*t tokens are taken, without a timer that
// refills and without a rounding error that adds up. What that is worth depends on
// the clock that `now` comes from: it must be one clock for all who take from a
// bucket, read after the bucket was locked. See Take for a clock that steps.
package limits
