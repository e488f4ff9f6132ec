package apiserver

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// object is what is stored. It is never changed once it is in the store.
type object interface {
	runtime.Object
	metav1.Object
}

// clone returns a copy that may be changed.
func clone(o object) object { return o.DeepCopyObject().(object) }

// key names an object among those of its kind.
type key struct{ namespace, name string }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.namespace, other.namespace), cmp.Compare(k.name, other.name))
}

// change is one entry of the history: what a watch tells.
type change struct {
	revision uint64
	kind     watch.EventType
	resource *servedKind
	key      key
	object   object // after the change, or the last state of what was deleted
	previous object // nil for what was added
}

// store keeps objects and the history of their changes. Every change has a revision of
// its own, as in etcd.
type store struct {
	mu       sync.Mutex
	objects  map[*servedKind]map[key]object
	revision uint64
	// history holds the changes after the revision compacted, in order.
	history   []change
	compacted uint64
	limit     int
	// changed is closed, and replaced, with every change.
	changed chan struct{}
}

func newStore(limit int) *store {
	return &store{
		objects:  map[*servedKind]map[key]object{},
		revision: 1000, compacted: 1000, limit: limit,
		changed: make(chan struct{}),
	}
}

func (s *store) get(r *servedKind, k key) (object, bool) {
	o, ok := s.objects[r][k]
	return o, ok
}

// put stores an object, new or changed, under a new revision. The store owns it then.
func (s *store) put(r *servedKind, o object) object {
	k := key{o.GetNamespace(), o.GetName()}
	previous, existed := s.objects[r][k]
	c := change{kind: watch.Added, resource: r, key: k, object: o}
	if existed {
		c.kind, c.previous = watch.Modified, previous
	}
	s.record(c)
	if s.objects[r] == nil {
		s.objects[r] = map[key]object{}
	}
	s.objects[r][k] = o
	return o
}

// remove deletes an object, of which last is the final state.
func (s *store) remove(r *servedKind, last object) object {
	k := key{last.GetNamespace(), last.GetName()}
	previous := s.objects[r][k]
	last = clone(last)
	delete(s.objects[r], k)
	s.record(change{kind: watch.Deleted, resource: r, key: k, object: last, previous: previous})
	return last
}

func (s *store) record(c change) {
	s.revision++
	c.revision = s.revision
	c.object.GetObjectKind().SetGroupVersionKind(c.resource.gvk())
	c.object.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	s.history = append(s.history, c)
	if len(s.history) > s.limit+s.limit/4 {
		s.compact(s.history[len(s.history)-s.limit-1].revision)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// compact forgets the changes up to a revision.
func (s *store) compact(revision uint64) {
	first, _ := slices.BinarySearchFunc(s.history, revision+1, byRevision)
	s.history = slices.Clone(s.history[first:])
	s.compacted = max(s.compacted, revision)
}

func byRevision(c change, revision uint64) int { return cmp.Compare(c.revision, revision) }

// since returns the changes after a revision, and false if some of them are forgotten.
func (s *store) since(revision uint64) ([]change, bool) {
	if revision < s.compacted {
		return nil, false
	}
	first, _ := slices.BinarySearchFunc(s.history, revision+1, byRevision)
	return s.history[first:], true
}

// at returns all objects of a kind in the order of their keys, as they were at a
// revision, and false if that is forgotten.
func (s *store) at(r *servedKind, revision uint64) ([]object, bool) {
	if revision < s.compacted {
		return nil, false
	}
	all := s.objects[r]
	if revision < s.revision {
		undone := make(map[key]object, len(all))
		for k, o := range all {
			undone[k] = o
		}
		for _, c := range slices.Backward(s.history) {
			if c.revision <= revision {
				break
			}
			switch {
			case c.resource != r:
			case c.previous == nil:
				delete(undone, c.key)
			default:
				undone[c.key] = c.previous
			}
		}
		all = undone
	}
	keys := make([]key, 0, len(all))
	for k := range all {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, key.compare)
	list := make([]object, len(keys))
	for i, k := range keys {
		list[i] = all[k]
	}
	return list, true
}

// parseRevision reads a resourceVersion of a client; "" is 0.
func parseRevision(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("invalid resource version %q", text)
	}
	return n, nil
}

// asObject returns what was decoded as something that can be stored.
func asObject(o runtime.Object) (object, error) {
	stored, ok := o.(object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", o)
	}
	if _, err := meta.Accessor(o); err != nil {
		return nil, err
	}
	return stored, nil
}
