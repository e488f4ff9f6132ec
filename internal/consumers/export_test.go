package consumers

import "time"

// SetWait changes how long a caller is kept waiting for the outcome of a command.
func SetWait(o *Operator, d time.Duration) { o.wait = d }
