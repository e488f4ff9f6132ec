//go:build linux || darwin

package retention

import "syscall"

// freeBytes is how many bytes the file system of a directory still takes from an
// ordinary user.
func freeBytes(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	//nolint:unconvert // the fields differ in type between systems; no disk has 2^63 bytes
	return int64(s.Bavail) * int64(s.Bsize), true
}
