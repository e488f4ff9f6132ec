package workflow

// Updating says whether generated files are to be written anew.
func Updating() bool { return *update }
