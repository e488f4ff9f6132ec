package main

import (
	"github.com/spf13/cobra"
)

func (c *cli) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the completion script of a shell",
		Long: `Print a script that completes commands and flags in a shell. Load it for this session
as the first example shows, or write it to where the shell looks for completions.`,
		Example: `  source <(millrace completion bash)
  millrace completion zsh > "${fpath[1]}/_millrace"
  millrace completion fish > ~/.config/fish/completions/millrace.fish`,
		ValidArgs:             shells,
		DisableFlagsInUseLine: true,
		Args:                  args(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, names []string) error {
			root := cmd.Root()
			switch names[0] {
			case "bash":
				return root.GenBashCompletionV2(c.out, true)
			case "zsh":
				return root.GenZshCompletion(c.out)
			case "fish":
				return root.GenFishCompletion(c.out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(c.out)
			}
		},
	}
}
