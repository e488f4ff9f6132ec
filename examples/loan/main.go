// Command loan is a worker for the two workflows beside it: an application for a loan is
// checked, weighed and decided, and an approved loan is paid out.
//
// With `millrace up` in one terminal, in another:
//
//	millrace workflows apply examples/loan/loan-disbursement.json examples/loan/loan-application.json
//	MILLRACE_TOKEN=$(millrace token) go -C examples/loan run .
//
// and then `millrace instances start LOS::loan-application-full --var loanAmount=200000000 --wait`.
// It is a module of its own, because workers need nothing but the SDK.
//
// The handlers are the same in both dispatch modes: with -brokers, or WE_DISPATCH_MODE as
// the engine has it, jobs are read from Kafka, otherwise they are polled for. A job may
// come twice, so what they make up they make from the job's idempotency key.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/millrace/millrace/sdk/go/client"
	"github.com/millrace/millrace/sdk/go/kafka"
	"github.com/millrace/millrace/sdk/go/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, "loan:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("loan", flag.ContinueOnError)
	url := fs.String("url", cmp.Or(os.Getenv("MILLRACE_API_URL"), "http://127.0.0.1:8080"), "address of the engine")
	tokenFile := fs.String("token-file", "", "file with the token; MILLRACE_TOKEN without it")
	brokers := fs.String("brokers", brokersFromEnvironment(), "Kafka brokers, where jobs are dispatched over Kafka; empty polls for jobs")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	token := os.Getenv("MILLRACE_TOKEN")
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			return err
		}
		token = strings.TrimSpace(string(text))
	}
	engine, err := client.NewREST(*url, client.WithToken(token))
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	registry := handlers()
	slog.Info("working", "engine", *url, "brokers", *brokers)
	if *brokers != "" {
		return kafka.NewRunner(engine, registry, kafka.Config{Brokers: strings.Split(*brokers, ",")}).Run(ctx)
	}
	return worker.NewRunner(engine, registry, worker.Config{}).Run(ctx)
}

// brokersFromEnvironment goes by the variables that the engine goes by.
func brokersFromEnvironment() string {
	if os.Getenv("WE_DISPATCH_MODE") != "kafka_outbox" {
		return ""
	}
	return cmp.Or(os.Getenv("WE_KAFKA_SEED_BROKERS"), "127.0.0.1:9092")
}

// application is what the workflows know about an application.
type application struct {
	ApplicantID    string   `json:"applicantId"`
	ApplicantEmail string   `json:"applicantEmail"`
	LoanAmount     float64  `json:"loanAmount"`
	CreditScore    *int     `json:"creditScore"`
	FraudScore     *float64 `json:"fraudScore"`
	NetAmount      float64  `json:"netAmount"`
}

// variables are what a handler sets.
type variables = map[string]any

// handlers are one for each type of jobs.
func handlers() *worker.Registry {
	r := worker.NewRegistry()
	worker.Handle(r, "validate-application", validate)
	worker.Handle(r, "credit-score", func(_ context.Context, a application) (variables, error) {
		if a.CreditScore != nil { // known already: what a caller has found out, or a test wants
			return variables{"creditScore": *a.CreditScore}, nil
		}
		return variables{"creditScore": 650 + number(a.ApplicantID, 200)}, nil
	})
	worker.Handle(r, "fraud-screen", func(_ context.Context, a application) (variables, error) {
		if a.FraudScore != nil {
			return variables{"fraudScore": *a.FraudScore}, nil
		}
		return variables{"fraudScore": float64(number(a.ApplicantID, 50)) / 100}, nil
	})
	worker.Handle(r, "approve-loan", reference("loanId", "LOAN"))
	worker.Handle(r, "prepare-disbursement", reference("disbursementId", "DISB"))
	worker.Handle(r, "transfer-funds", reference("transferRef", "TXN"))
	worker.Handle(r, "notify-disbursement", told("the money is on its way"))
	worker.Handle(r, "escalate-review", told("the review takes longer"))
	worker.Handle(r, "notify-approval-overdue", told("the approval takes longer"))
	return r
}

// validate refuses what no other attempt would mend.
func validate(_ context.Context, a application) (variables, error) {
	if a.LoanAmount <= 0 {
		return nil, &worker.NonRetryable{Cause: worker.Fail("bad_amount", fmt.Errorf("a loan of %g cannot be given", a.LoanAmount))}
	}
	id := cmp.Or(a.ApplicantID, "APP-1")
	return variables{
		"applicantId": id, "loanAmount": a.LoanAmount, "applicantEmail": cmp.Or(a.ApplicantEmail, strings.ToLower(id)+"@example.com"),
	}, nil
}

// reference makes a handler that does a thing which has a number afterwards: the same one
// however often the job comes.
func reference(variable, prefix string) func(context.Context, application) (variables, error) {
	return func(ctx context.Context, _ application) (variables, error) {
		job, _ := worker.JobFrom(ctx)
		return variables{variable: fmt.Sprintf("%s-%06d", prefix, number(job.IdempotencyKey(), 1_000_000))}, nil
	}
}

// told makes a handler that tells the customer something.
func told(what string) func(context.Context, application) (struct{}, error) {
	return func(ctx context.Context, a application) (struct{}, error) {
		slog.InfoContext(ctx, "mail", "to", a.ApplicantEmail, "text", what)
		return struct{}{}, nil
	}
}

// number makes a number below most of a text, always the same one.
func number(text string, most uint32) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return int(h.Sum32() % most)
}
