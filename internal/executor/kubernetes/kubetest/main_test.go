package kubetest_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/millrace/millrace/internal/testenv"
)

// TestMain is also the program that containers find at kubelet.ProgramPath.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "flood" {
		n, err := strconv.Atoi(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if _, err := os.Stdout.Write(ramp(n)); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Run(m)
}

// ramp is n bytes of which each is its position modulo 256.
func ramp(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	return p
}
