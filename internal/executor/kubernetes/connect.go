package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/internal/executor"
)

// Connection says where the cluster is. The zero value is the cluster that this process
// runs in, or that of the user's kubeconfig.
type Connection struct {
	// Kubeconfig is a file, and Context one of those in it.
	Kubeconfig, Context string
	// QPS and Burst bound the requests to the API server; at least 1.
	QPS, Burst int
	// UserAgent is what the API server's logs know the client by.
	UserAgent string
}

// ErrNoCluster: it is not known where the cluster is.
var ErrNoCluster = errors.New("no cluster is configured")

// Connect makes a client. It does no I/O but read files: whether the cluster answers is
// seen by the first call, for instance of Probe.
func Connect(c Connection) (clientset.Interface, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = float32(max(c.QPS, 1)), max(c.Burst, 1)
	config.UserAgent = c.UserAgent
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return client, nil
}

func (c Connection) config() (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Context == "" {
		config, err := rest.InClusterConfig()
		if err == nil || !errors.Is(err, rest.ErrNotInCluster) {
			return config, wrap("read the account of this pod", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // KUBECONFIG, ~/.kube/config
	rules.ExplicitPath = c.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("%w: this process does not run in a pod, and there is no kubeconfig (%s): set kubernetes.kubeconfig, or leave kubernetes out of worker.executors",
			ErrNoCluster, strings.Join(rules.GetLoadingPrecedence(), ", "))
	case err != nil && strings.Contains(err.Error(), "does not exist"): // clientcmd has no type for it
		return nil, fmt.Errorf("kubernetes.context: %w: kubectl config get-contexts lists those that there are", err)
	default:
		return config, wrap("read kubeconfig", err)
	}
}

func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// Right is one thing that the executor does with the API.
type Right struct {
	// Resource may have a subresource, as in pods/log.
	Resource string
	Verbs    []string
	// ClusterWide is for rights that are not in a namespace, or needed in all of them.
	ClusterWide bool
	// Optional rights are for what the executor can do without.
	Optional bool
	// For says what needs it.
	For string
}

// Rights are the least that the executor works with, those without ClusterWide in each
// namespace where pods are made. deploy/kubernetes grants them, and no more. Nodes and quotas
// are asked for where Settings.Capacity has the room known from them.
func (b *Builder) Rights() []Right {
	own := []Right{
		{Resource: "pods", Verbs: []string{"create", "get", "patch", "delete"}, For: "running executions"},
		{Resource: "pods/log", Verbs: []string{"get"}, For: "reading their output"},
		{Resource: "configmaps", Verbs: []string{"create", "get", "delete"}, For: "handing them scripts, files and input"},
		{Resource: "pods", Verbs: []string{"list", "watch"}, ClusterWide: b.NamespacesByTenant(), For: "seeing what becomes of them"},
		{Resource: "configmaps", Verbs: []string{"list"}, ClusterWide: b.NamespacesByTenant(), For: "finding what was left over"},
	}
	if b.settings.Capacity.ofNodes() {
		own = append(own, Right{Resource: "nodes", Verbs: []string{"list", "watch"}, ClusterWide: true, Optional: true, For: "knowing the room of the cluster"})
	}
	if b.settings.Capacity.ofQuotas() && !b.NamespacesByTenant() { // the quotas of no namespace are those of the cluster
		own = append(own, Right{Resource: "resourcequotas", Verbs: []string{"list", "watch"}, Optional: true, For: "knowing the room of the namespace"})
	}
	return own
}

// Report is what Probe has found.
type Report struct {
	// Version is that of the API server.
	Version string
	// Missing are rights without which nothing works, as "create pods"; Wanting those that
	// the executor can do without, with what for.
	Missing, Wanting []string
	// Refused are answers of the cluster to pods of classes, made for a trial, by class: what
	// their executions would end with, or wait for.
	Refused map[string]executor.Result
}

// Probe asks the cluster whether it would run pods of these classes: whether it answers,
// whether the account has the Rights, and whether admission lets through a pod of each
// class, which is not made. An error says that the cluster cannot be reached, or does not
// know the account.
//
// With a namespace for each tenant it asks for the common one, and for what is needed in all.
func Probe(ctx context.Context, client clientset.Interface, b *Builder, classes []string) (Report, error) {
	var r Report
	var running version.Info
	text, err := client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(text, &running)
	}
	if err != nil {
		return r, unreachable(err)
	}
	r.Version = running.GitVersion
	for _, right := range b.Rights() {
		lacking, err := b.lacking(ctx, client, right)
		if err != nil {
			return r, unreachable(err)
		}
		for _, verb := range lacking {
			text := verb + " " + right.Resource
			switch {
			case right.Optional:
				r.Wanting = append(r.Wanting, text+" ("+right.For+")")
			case right.ClusterWide:
				r.Missing = append(r.Missing, text+" in all namespaces")
			default:
				r.Missing = append(r.Missing, text)
			}
		}
	}
	if slices.Contains(r.Missing, "create pods") {
		return r, nil
	}
	r.Refused, err = b.trial(ctx, client, classes)
	return r, err
}

// lacking returns the verbs of a right that the account does not have.
func (b *Builder) lacking(ctx context.Context, client clientset.Interface, right Right) ([]string, error) {
	var verbs []string
	resource, sub, _ := strings.Cut(right.Resource, "/")
	for _, verb := range right.Verbs {
		asked := authorization.ResourceAttributes{Verb: verb, Resource: resource, Subresource: sub}
		if !right.ClusterWide {
			asked.Namespace = b.settings.Namespace
		}
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &asked}}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
			return nil, nil // the cluster does not say; the trial does
		case err != nil:
			return nil, err
		case !answer.Status.Allowed:
			verbs = append(verbs, verb)
		}
	}
	return verbs, nil
}

// trial asks the API server to make a pod of each class as if it were meant.
func (b *Builder) trial(ctx context.Context, client clientset.Interface, classes []string) (map[string]executor.Result, error) {
	refused := make(map[string]executor.Result)
	for _, class := range classes {
		work := executor.Task{ExecutionID: "probe", Attempt: 1, Class: class, Spec: []byte(`{"command":["true"]}`), RunLimit: time.Minute}
		if b.settings.DefaultImage == "" {
			work.Spec = []byte(`{"command":["true"],"image":"millrace.invalid/probe"}`)
		}
		anyImage := *b
		anyImage.images = []imagePattern{{name: globs("**")}}
		o, err := anyImage.Build(work)
		if err != nil {
			return nil, err
		}
		o.Pod.Name, o.Pod.GenerateName = "", namePrefix+"probe-"
		_, err = client.CoreV1().Pods(o.Pod.Namespace).Create(ctx, o.Pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			continue
		}
		result, known := Refused(err)
		if !known {
			return nil, unreachable(err)
		}
		refused[class] = result
	}
	return refused, nil
}

// unreachable adds to an error of the API server, or of the way to it, what to do.
func unreachable(err error) error {
	advice := "is the cluster up, and is kubernetes.kubeconfig its own?"
	switch status := apierrors.APIStatus(nil); {
	case apierrors.IsUnauthorized(err):
		advice = "the API server does not know the account: its token or certificate is wrong, or has expired"
	case apierrors.IsForbidden(err):
		advice = "the account may not do that"
	case errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError:
		advice = "the API server is in trouble"
	case strings.Contains(err.Error(), "x509:"):
		advice = "the certificate of the API server is not what the kubeconfig says"
	}
	return fmt.Errorf("ask the cluster: %w: %s", err, advice)
}
