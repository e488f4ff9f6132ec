package admission

import "container/heap"

// ordered is a priority queue whose members can be moved and removed.
type ordered[T comparable] struct {
	items []T
	at    map[T]int
	less  func(a, b T) bool
}

func newOrdered[T comparable](less func(a, b T) bool) *ordered[T] {
	return &ordered[T]{at: map[T]int{}, less: less}
}

// put adds a member, or moves one whose place has changed.
func (o *ordered[T]) put(item T) {
	if i, ok := o.at[item]; ok {
		heap.Fix(o, i)
		return
	}
	heap.Push(o, item)
}

// remove takes a member out; one that is not there is no error.
func (o *ordered[T]) remove(item T) {
	if i, ok := o.at[item]; ok {
		heap.Remove(o, i)
	}
}

// first returns the member that comes first.
func (o *ordered[T]) first() (item T, ok bool) {
	if len(o.items) == 0 {
		return item, false
	}
	return o.items[0], true
}

// Len, Less, Swap, Push and Pop implement heap.Interface.

func (o *ordered[T]) Len() int           { return len(o.items) }
func (o *ordered[T]) Less(i, j int) bool { return o.less(o.items[i], o.items[j]) }
func (o *ordered[T]) Swap(i, j int) {
	o.items[i], o.items[j] = o.items[j], o.items[i]
	o.at[o.items[i]], o.at[o.items[j]] = i, j
}

func (o *ordered[T]) Push(x any) {
	item, _ := x.(T)
	o.at[item] = len(o.items)
	o.items = append(o.items, item)
}

func (o *ordered[T]) Pop() any {
	last := len(o.items) - 1
	item := o.items[last]
	var none T
	o.items[last] = none
	o.items = o.items[:last]
	delete(o.at, item)
	return item
}
