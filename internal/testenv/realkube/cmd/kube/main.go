// Command kube builds the API server of Kubernetes and etcd for the tests that need real
// ones: see package realkube. With -find it only says whether they are there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace/internal/testenv/realkube"
)

func main() {
	find := flag.Bool("find", false, "do not build: fail if nothing was built yet")
	source := flag.String("source", "tools/kube", "the folder of the modules")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binaries, err := realkube.Find()
	if err != nil && !*find {
		binaries, err = realkube.Build(ctx, *source, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: the program ends
	}
	fmt.Println(binaries.APIServer)
	fmt.Println(binaries.Etcd)
}
