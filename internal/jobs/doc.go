// Package jobs keeps the jobs of service tasks: what workers claim, hold under a lease,
// and complete or fail.
package jobs
