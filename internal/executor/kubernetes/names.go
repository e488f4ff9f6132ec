package kubernetes

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/internal/executor/pods"
)

// Labels and annotations of what Millrace creates.
const (
	ManagedByLabel    = "app.kubernetes.io/managed-by" // always ManagedBy
	InstallationLabel = "millrace.io/installation"
	ExecutionLabel    = "millrace.io/execution" // the id, or a digest of one that is no label
	FirstLabel        = "millrace.io/first"     // pods.Run.First
	ClassLabel        = "millrace.io/class"
	TenantLabel       = "millrace.io/tenant"

	ExecutionAnnotation = "millrace.io/execution" // the id as it is
	TenantAnnotation    = "millrace.io/tenant"    // the tenant as it is
	// AttemptAnnotation is the latest attempt that carries the run on.
	AttemptAnnotation = "millrace.io/attempt"

	// ManagedBy is the value of ManagedByLabel.
	ManagedBy = "millrace"
	// WorkContainer is the container of the pod that does the work. Admission may have
	// added others.
	WorkContainer = "work"
)

// maxLabel is the longest label of DNS, name of a pod that is its host name, and value of
// a label.
const maxLabel = 63

// namePrefix begins the names of pods. An id that can be a part of a name follows it, or a
// second hyphen and a digest, which no such id begins with.
const namePrefix = "millrace-"

// Name is the name of the pod and the ConfigMap of one run of the work, origin being
// executor.Task.Origin. It is a label of DNS (RFC 1123) of at most 63 letters, and no two
// runs have the same.
func Name(execution string, origin int) string {
	end := "-" + strconv.Itoa(origin)
	if dnsLabel.MatchString(execution) && len(namePrefix)+len(execution)+len(end) <= maxLabel {
		return namePrefix + execution + end
	}
	return namePrefix + "-" + digest(execution) + end
}

var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

// digest is 32 letters and digits in lower case that stand for a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:20]))
}

// digestMark stands between what can be read of a text and its digest. What has it itself
// is digested too, so that no two texts become the same.
const digestMark = "--"

// asLabel makes a value of a label of a text: the text itself where it can be one, else
// what can be read of it and a digest.
func asLabel(text string) string {
	if len(text) <= maxLabel && labelValue.MatchString(text) && !strings.Contains(text, digestMark) {
		return text
	}
	return readable(text, "._", maxLabel)
}

// asName is asLabel for parts of names, which are in lower case.
func asName(text string, room int) string {
	if len(text) <= room && dnsLabel.MatchString(text) && !strings.Contains(text, digestMark) {
		return text
	}
	// The digest is that of the text as it is: Acme and ACME are two.
	return strings.ToLower(readable(text, "", room))
}

// minReadable is the least room that readable can do with.
const minReadable = 40

func readable(text, also string, room int) string {
	letter := func(r rune) rune {
		if r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(also, r)) {
			return r
		}
		return '-'
	}
	sum := digest(text)
	plain := strings.Map(letter, text)
	for strings.Contains(plain, digestMark) {
		plain = strings.ReplaceAll(plain, digestMark, "-")
	}
	plain = plain[:min(len(plain), room-len(digestMark)-len(sum))]
	return cmp.Or(strings.Trim(plain, "-._"), "x") + digestMark + sum
}

// Selector selects all that an installation has created.
func Selector(installation string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{ManagedByLabel: ManagedBy, InstallationLabel: asLabel(installation)})
}

// ExecutionSelector selects what belongs to one execution of an installation.
func ExecutionSelector(installation, execution string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{
		ManagedByLabel: ManagedBy, InstallationLabel: asLabel(installation), ExecutionLabel: asLabel(execution),
	})
}

// RunOf tells which run of the work an object is for, and false for what is not of
// Millrace's making. It needs ManagedByLabel, FirstLabel and ExecutionAnnotation.
func RunOf(obj metav1.Object) (pods.Run, bool) {
	marks := obj.GetLabels()
	first, err := strconv.Atoi(marks[FirstLabel])
	execution := obj.GetAnnotations()[ExecutionAnnotation]
	if err != nil || first < 1 || execution == "" || marks[ManagedByLabel] != ManagedBy {
		return pods.Run{}, false
	}
	return pods.Run{ExecutionID: execution, First: first}, true
}

// PodOf is RunOf with where the object is.
func PodOf(obj metav1.Object) (pods.Pod, bool) {
	run, ok := RunOf(obj)
	if !ok {
		return pods.Pod{}, false
	}
	return pods.Pod{
		ExecutionID: run.ExecutionID, First: run.First,
		UID: string(obj.GetUID()), Namespace: obj.GetNamespace(), Name: obj.GetName(),
	}, true
}

// tenantMark stands for the tenant in Settings.NamespacePerTenant.
const tenantMark = "{tenant}"

// Namespace is where the pods of a tenant are made.
func (b *Builder) Namespace(tenant string) string {
	pattern := b.settings.NamespacePerTenant
	if pattern == "" || tenant == "" || tenant == b.settings.CommonTenant {
		return b.settings.Namespace
	}
	room := maxLabel - (len(pattern) - len(tenantMark))
	return strings.Replace(pattern, tenantMark, asName(tenant, room), 1)
}

// NamespacesByTenant says whether pods are made in more than one namespace, so that all
// have to be watched.
func (b *Builder) NamespacesByTenant() bool { return b.settings.NamespacePerTenant != "" }
