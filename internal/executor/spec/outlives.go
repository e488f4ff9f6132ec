package spec

// OutlivesWorker reports whether what an executor runs goes on when its worker is lost. Such
// work cannot take its worker down just by running.
func OutlivesWorker(executor string) bool {
	switch executor {
	case ExecutorWorkflow, ExecutorKubernetes:
		return true
	default:
		return false
	}
}
