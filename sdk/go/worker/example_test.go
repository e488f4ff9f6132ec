package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/worker"
	"github.com/millrace/millrace/sdk/go/workertest"
)

// A worker asks an engine for jobs and does them until its context ends. Here the engine
// is one in memory; NewREST and NewGRPC of package client connect to a real one.
func Example() {
	engine := workertest.NewEngine()
	registry := worker.NewRegistry()
	registry.Register("process-order", func(_ context.Context, job worker.JobContext) (worker.Result, error) {
		order, _ := job.Variables["orderId"].(string)
		return worker.Result{VariablesToSet: map[string]any{"processed": order}}, nil
	})

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := worker.NewRunner(engine, registry, worker.Config{WorkerID: "orders-1"}).Run(ctx); err != nil {
			log.Print(err)
		}
	})
	job := engine.Await(reporter{}, engine.Enqueue("process-order", map[string]any{"orderId": "O-17"}))
	fmt.Println(job.Status, job.Variables()["processed"])
	stop()
	running.Wait()
	// Output: COMPLETED O-17
}

// Handle registers a function of your own types. Errors say what the engine should do.
func ExampleHandle() {
	type order struct {
		Amount float64 `json:"amount"`
	}
	type receipt struct {
		Receipt string `json:"receipt"`
	}
	registry := worker.NewRegistry()
	worker.Handle(registry, "charge", func(_ context.Context, in order) (receipt, error) {
		switch {
		case in.Amount <= 0: // it will never be more
			return receipt{}, &worker.NonRetryable{Cause: errors.New("nothing to charge")}
		case in.Amount > 1000: // an error boundary of the step may take this
			return receipt{}, worker.Fail("limit_exceeded", errors.New("more than the card allows"))
		default:
			return receipt{Receipt: "R-1"}, nil
		}
	})

	engine := workertest.NewEngine()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := worker.NewRunner(engine, registry, worker.Config{}).Run(ctx); err != nil {
			log.Print(err)
		}
	})
	for _, amount := range []float64{12, 0} {
		job := engine.Await(reporter{}, engine.Enqueue("charge", order{Amount: amount}))
		fmt.Println(job.Status, job.Variables()["receipt"])
		for _, f := range job.Failures {
			fmt.Println("failed:", f.Message, f.Retryable)
		}
	}
	stop()
	running.Wait()
	// Output:
	// COMPLETED R-1
	// FAILED <nil>
	// failed: nothing to charge false
}

// Programs that start workflows use the same client.
func ExampleRunner_start() {
	engine, err := client.NewREST("http://localhost:8080", client.WithToken("secret"))
	if err != nil {
		log.Fatal(err)
	}
	instance, err := engine.StartInstance(context.Background(), client.StartInstanceRequest{
		DefinitionID: "orders", Variables: map[string]any{"orderId": "O-17"}, BusinessKey: "O-17",
	})
	if err != nil {
		log.Fatal(err)
	}
	instance, err = client.WaitForEnd(context.Background(), engine, instance.ID)
	fmt.Println(instance.Status, err)
}

// reporter stands for the *testing.T of a test.
type reporter struct{}

func (reporter) Helper()                        {}
func (reporter) Fatalf(format string, a ...any) { log.Fatalf(format, a...) }
