package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/server/health"
)

const readyLong = `Ask a running process whether it can serve: exit code 0 when it is ready, 1 when it is
not or does not answer, and then the checks that fail are printed. It asks the listener
for operators, which needs no token: the one at --admin-url, else that of the instance
that "millrace up" runs on the data directory, else the one of admin.listen.

It is made for health checks of containers.`

func (c *cli) readyCommand() *cobra.Command {
	var url string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Ask a running process whether it is ready",
		Long:  readyLong,
		Example: `  millrace ready
  millrace ready --admin-url http://127.0.0.1:9091 --timeout 2s
  millrace ready -o json`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usagef("--timeout: want a positive duration")
			}
			if url == "" {
				var err error
				if url, err = c.adminURL(); err != nil {
					return err
				}
			}
			return c.repeat(cmd.Context(), func(ctx context.Context, w io.Writer) error {
				return c.ready(ctx, w, url, timeout)
			})
		},
	}
	cmd.Flags().StringVar(&url, "admin-url", "", "address of the listener for operators, such as http://127.0.0.1:9091")
	cmd.Flags().DurationVar(&timeout, "timeout", 4*time.Second, "how long to wait for the answer")
	return cmd
}

// adminURL finds the listener for operators of this machine.
func (c *cli) adminURL() (string, error) {
	config, err := c.sources().Load()
	if err != nil {
		return "", err
	}
	endpoints, err := configs.ReadEndpoints(config.DataDir)
	if err == nil && endpoints.AdminURL != "" {
		return endpoints.AdminURL, nil
	}
	// Files that this user may not read are those of another's instance.
	host, port, err := net.SplitHostPort(config.Admin.Listen)
	if err != nil || port == "0" {
		return "", usagef("the address of the listener for operators is not known (admin.listen is %q): give --admin-url", config.Admin.Listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

func (c *cli) ready(ctx context.Context, w io.Writer, url string, timeout time.Duration) error {
	report, err := readiness(ctx, url, timeout)
	if err != nil {
		return err
	}
	switch c.output {
	case "json", "yaml":
		err = c.document(w, report)
	default:
		var out strings.Builder
		if report.Ready {
			out.WriteString("ready\n")
		}
		for _, check := range report.Checks {
			if !check.OK {
				fmt.Fprintf(&out, "%s: %s\n", check.Name, oneLine(check.Cause))
			}
		}
		_, err = io.WriteString(w, out.String())
	}
	if err == nil && !report.Ready {
		return &exitError{code: exitFailure, text: "not ready: " + strings.Join(report.Failing(), ", ")}
	}
	return err
}

// readiness asks for the report of all checks.
func readiness(ctx context.Context, url string, timeout time.Duration) (health.Report, error) {
	var report health.Report
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	url = strings.TrimSuffix(url, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz?verbose", nil)
	if err != nil {
		return report, usagef("--admin-url: want http://host:port, not %q", url)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return report, &exitError{exitFailure, fmt.Sprintf("not ready: nothing answers at %s", url)}
	case errors.Is(err, context.DeadlineExceeded):
		return report, &exitError{exitFailure, fmt.Sprintf("not ready: %s did not answer within %s", url, timeout)}
	case err != nil:
		return report, fmt.Errorf("ask whether it is ready: %w", err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&report); err != nil || report.CheckedAt.IsZero() {
		return report, fmt.Errorf("ask whether it is ready: %s answered %s: is this the listener for operators of Millrace?", url, resp.Status)
	}
	// The status is what load balancers go by; the report must not say otherwise.
	report.Ready = report.Ready && resp.StatusCode == http.StatusOK
	return report, nil
}
