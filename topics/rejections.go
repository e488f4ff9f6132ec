package topics

// Further reasons of ExecutionRejected: what was asked for does not exist, or cannot
// be judged.
const (
	// RejectedUnknownResourceClass: no worker has ever announced the resource class,
	// and it is not configured.
	RejectedUnknownResourceClass = "unknown_resource_class"
	// RejectedLimitKeyInvalid: the expression of a limit has no value for the request
	// that could be a key, or costs too much to evaluate.
	RejectedLimitKeyInvalid = "limit_key_invalid"
)
