package process

import "fmt"

// SandboxMode says whether programs run inside bubblewrap.
type SandboxMode string

// The modes.
const (
	// SandboxOff: they do not, whether or not it is installed.
	SandboxOff SandboxMode = "off"
	// SandboxAuto: they do where it works. Where it does not, they run without it,
	// and the log says so.
	SandboxAuto SandboxMode = "auto"
	// SandboxRequired: without it there is no executor.
	SandboxRequired SandboxMode = "required"
)

// Sandbox configures the walls that bubblewrap puts around a program: it sees the
// machine's files read-only, /tmp empty and its own, no processes but its own, and
// it can write to its working directory only. The zero value is off.
type Sandbox struct {
	// Mode defaults to SandboxOff.
	Mode SandboxMode
	// NoNetwork takes the network away too, the loopback of the machine included.
	NoNetwork bool
	// Writable are directories that programs may write to beside their own.
	Writable []string
	// Hidden are directories that programs find empty: where secrets lie. One that
	// holds the working directories does not hide a program's own.
	Hidden []string
}

func (s Sandbox) validate() error {
	switch s.Mode {
	case "", SandboxOff, SandboxAuto, SandboxRequired:
		return nil
	default:
		return fmt.Errorf("sandbox mode %q: want off, auto or required", s.Mode)
	}
}

func (s Sandbox) off() bool { return s.Mode == "" || s.Mode == SandboxOff }
