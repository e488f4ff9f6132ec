package process

// Feature is one thing that holds, or does not, for programs on this machine.
type Feature struct {
	// Name is stable, in snake_case: "process_group", "subreaper",
	// "no_new_privileges", "parent_death_signal", "resource_limits",
	// "no_core_dumps", "clean_descriptors", "pidfd", "unprivileged_user",
	// "bubblewrap".
	Name string `json:"name"`
	// Active says whether it holds now.
	Active bool `json:"active"`
	// Detail says in words what it means here, or why it is missing.
	Detail string `json:"detail"`
}

// featureSandbox is the name of the feature that Sandbox configures.
const featureSandbox = "bubblewrap"
