// Command cluster runs a Kubernetes cluster for development in the foreground: the API server
// of Kubernetes and etcd (see make kube), and nodes whose containers are processes of this
// machine, with its programs, whatever the image is called. It prints the path of a kubeconfig
// on one line to stdout and runs until a signal. Nothing of it is kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/millrace/millrace/internal/executor/kubernetes/kubetest"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	path := flag.String("kubeconfig", "", "file to write the kubeconfig to; a temporary one when empty")
	nodes := flag.Int("nodes", 2, "how many nodes the cluster has")
	flag.Parse()
	dir, err := os.MkdirTemp("", "millrace-cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // containers are other users
		return err
	}
	cluster, err := kubetest.Open(ctx, kubetest.Options{})
	if err != nil {
		return err
	}
	defer cluster.Close()
	for n := range *nodes {
		if _, err := cluster.Join(ctx, kubetest.Node{}, filepath.Join(dir, strconv.Itoa(n))); err != nil {
			return err
		}
	}
	if *path == "" {
		*path = filepath.Join(dir, "kubeconfig")
	}
	if err := writeKubeconfig(cluster, *path); err != nil {
		return err
	}
	fmt.Println(*path)
	<-ctx.Done()
	return nil
}

// writeKubeconfig writes one for the administrator of a cluster.
func writeKubeconfig(cluster *kubetest.Cluster, path string) error {
	c, k := cluster.DirectConfig(), clientcmdapi.NewConfig()
	k.Clusters["dev"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	k.Contexts["dev"] = &clientcmdapi.Context{Cluster: "dev", AuthInfo: "admin"}
	k.CurrentContext = "dev"
	return clientcmd.WriteToFile(*k, path)
}
