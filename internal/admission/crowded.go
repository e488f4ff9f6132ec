package admission

// Crowded reports, between rounds, whether something waits that nothing but a lack of
// room keeps from being let through.
func (q *Queue) Crowded() bool { return q.best() != nil }
