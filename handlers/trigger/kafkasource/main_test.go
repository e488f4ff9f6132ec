package kafkasource_test

import (
	"os"
	"testing"

	"github.com/millrace/millrace/internal/testenv"
)

func TestMain(m *testing.M) {
	if setting := os.Getenv(childEnv); setting != "" {
		os.Exit(child(setting))
	}
	testenv.Run(m)
}
