package deadletter

// SetChunk makes chunks of n letters and calls between before each.
func (s *Store) SetChunk(n int, between func() error) { s.chunk, s.between = n, between }
