package hooks

// Waiting is how many requests wait for a transaction of that hook.
func (h *Hooks) Waiting(id string) int {
	h.mu.Lock()
	known := h.hooks[id]
	h.mu.Unlock()
	if known == nil {
		return 0
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	return len(known.waiting)
}

// Kept is how many hooks something is kept of.
func (h *Hooks) Kept() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.hooks)
}
