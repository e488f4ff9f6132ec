package kubernetes

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// key is where a pod is found.
type key = types.NamespacedName

// keyOf returns where an object is found.
func keyOf(obj metav1.Object) key { return key{Namespace: obj.GetNamespace(), Name: obj.GetName()} }

// board is what is known of the pods that this worker has to do with: those that its
// attempts wait for, and those that they have left, until they are gone. Other pods pass it
// without a trace. What it is shown is the state of a pod at some resource version, by the
// watch and by whoever asked the API server; what is older than what it knows is passed
// over.
type board struct {
	mu      sync.Mutex
	entries map[key]*entry
	// seen and gone are told of each new state, and of each end. They are called in the
	// order of the states, and must not wait.
	seen func(*corev1.Pod)
	gone func(*corev1.Pod)
}

// entry is one pod, or the lack of one.
type entry struct {
	view
	waiting []chan struct{}
}

// view is how a pod is.
type view struct {
	// pod is its latest state; nil when it was not seen yet.
	pod *corev1.Pod
	// gone: it is not there any more, and pod is how it was last.
	gone bool
	// config is the UID of the ConfigMap that was made for it, as far as it is known.
	config types.UID
}

func newBoard(seen, gone func(*corev1.Pod)) *board {
	return &board{entries: map[key]*entry{}, seen: seen, gone: gone}
}

// watch makes the board keep what it is shown of a pod. The channel is signalled when
// something has changed; the function ends that. The pod itself is kept until it is gone.
func (b *board) watch(k key) (<-chan struct{}, func()) {
	news := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	if e == nil {
		e = &entry{}
		b.entries[k] = e
	}
	e.waiting = append(e.waiting, news)
	return news, func() { b.leave(k, news) }
}

func (b *board) leave(k key, news chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[k]
	for i, w := range e.waiting {
		if w == news {
			e.waiting = append(e.waiting[:i], e.waiting[i+1:]...)
			break
		}
	}
	b.drop(k, e)
}

// drop forgets what nobody waits for and what is not there.
func (b *board) drop(k key, e *entry) {
	if len(e.waiting) == 0 && (e.gone || e.pod == nil) {
		delete(b.entries, k)
	}
}

// look returns how a pod is.
func (b *board) look(k key) view {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[k]; e != nil {
		return e.view
	}
	return view{}
}

// size is how many pods are known.
func (b *board) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

// configured notes the ConfigMap of a pod.
func (b *board) configured(k key, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[k]; e != nil {
		e.config = uid
	}
}

// show tells of a state of a pod.
func (b *board) show(p *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[keyOf(p)]
	if e == nil || e.pod != nil && !newer(p, e.pod) {
		return
	}
	if e.pod != nil && e.pod.UID != p.UID {
		b.end(e)
		e.config = ""
	}
	if e.gone && e.pod.UID == p.UID {
		return // a state that was on its way when the pod went
	}
	e.pod, e.gone = p, false
	b.seen(p)
	e.wake()
}

// remove tells that a pod is gone, p being how it was last.
func (b *board) remove(p *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := keyOf(p)
	e := b.entries[k]
	if e == nil || e.pod != nil && e.pod.UID != p.UID && !newer(p, e.pod) {
		return
	}
	if e.pod == nil || newer(p, e.pod) {
		e.pod = p
	}
	b.end(e)
	b.drop(k, e)
}

// absent tells that there is no pod with that UID, as the API server has answered.
func (b *board) absent(k key, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[k]; e != nil && e.pod != nil && e.pod.UID == uid {
		b.end(e)
		b.drop(k, e)
	}
}

// replace tells of all pods that there were at a resource version of the whole.
func (b *board) replace(all []*corev1.Pod, version string) {
	there := make(map[key]types.UID, len(all))
	for _, p := range all {
		there[keyOf(p)] = p.UID
		b.show(p)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, e := range b.entries {
		if e.pod == nil || e.gone || there[k] == e.pod.UID {
			continue
		}
		if order, err := resourceversion.CompareResourceVersion(e.pod.ResourceVersion, version); err == nil && order > 0 {
			continue // it was made since
		}
		b.end(e)
		b.drop(k, e)
	}
}

// end notes that the pod of an entry is gone, once.
func (b *board) end(e *entry) {
	if e.gone {
		return
	}
	e.gone = true
	b.gone(e.pod)
	e.wake()
}

func (e *entry) wake() {
	for _, w := range e.waiting {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// newer says whether p is a later state than known, or may be: what cannot be compared is
// taken for later.
func newer(p, known *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(p.ResourceVersion, known.ResourceVersion)
	return err != nil || order > 0
}
