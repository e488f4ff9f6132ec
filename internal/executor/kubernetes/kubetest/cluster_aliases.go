package kubetest

import "github.com/millrace/millrace/internal/executor/kubernetes/kubetest/faults"

// Call is a request to the API as faults see it.
type Call = faults.Call
