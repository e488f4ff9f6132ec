package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/internal/secret"
)

func (c *cli) tokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Print the token of the API",
		Long: `Print the token of the API: the one given by --token, MILLRACE_TOKEN or the
configuration, else the one that "millrace up" keeps in its data directory.`,
		Example: `  millrace token
  curl -H "Authorization: Bearer $(millrace token)" http://127.0.0.1:8080/v1/executions`,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			token, err := c.findToken()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.out, token.Reveal())
			return err
		},
	}
}

func (c *cli) findToken() (secret.Secret, error) {
	if c.token != "" {
		return secret.New(c.token), nil
	}
	if token := c.getenv("MILLRACE_TOKEN"); token != "" {
		return secret.New(token), nil
	}
	config, err := c.sources().Load()
	if err != nil {
		return secret.Secret{}, err
	}
	if token := config.API.Auth.Token; !token.IsZero() {
		return token, nil
	}
	token, err := configs.ReadToken(config.API.Auth.TokenFile)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return token, fmt.Errorf("%w: only the user who runs the server may read it", err)
	case err == nil && token.IsZero():
		return token, &notFoundError{fmt.Sprintf("there is no token in %s: start Millrace with `millrace up`, or name its data directory with --data-dir", config.API.Auth.TokenFile)}
	}
	return token, err
}
