package delivery

// Settle records that the effect of the first n records is durable although the delivery
// is about to be nacked: they do not come again, and what is tried again begins with the
// next. At least the last record counts as failed. The largest n wins. The stock driver of the
// transport takes no notice: there all of them come again.
func (d *Delivery) Settle(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = max(d.settled, n)
}

// Settled returns what Settle recorded.
func (d *Delivery) Settled() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled
}
