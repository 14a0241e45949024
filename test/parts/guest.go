package parts

import (
	"context"
	"fmt"
	"path/filepath"
)

// What a User-Mode Linux guest takes from Debian: a kernel, which trixie has no
// more, and an OCI runtime, for which bookworm's is too old: its crun 1.8.1 does
// not take what containerd 2.4 says ("unknown version specified"). crun starts a
// container with the fewest processes and system calls, which are slow there.
const (
	guestKernelRelease  = "bookworm"
	guestRuntimeRelease = "trixie"
)

// Guest is what a User-Mode Linux guest is made of.
type Guest struct {
	Kernel  string // a program of this machine
	Modules string // the folder of the kernel's modules
	Tree    string // crun and all that it loads, to be laid over the guest's root
}

// Guest returns kernel and runtime of a User-Mode Linux guest.
func (b *Builder) Guest(ctx context.Context) (Guest, error) {
	own, err := codename()
	if err != nil {
		return Guest{}, fmt.Errorf("find guest: %w", err)
	}
	kernel, err := b.unpackFrom(ctx, guestKernelRelease, own != guestKernelRelease, "uml", false, "user-mode-linux")
	if err != nil {
		return Guest{}, err
	}
	modules, err := filepath.Glob(filepath.Join(kernel, "usr/lib/uml/modules/*"))
	if err != nil || len(modules) != 1 {
		return Guest{}, fmt.Errorf("find modules of the guest's kernel in %s: %v, %w", kernel, modules, err)
	}
	tree, err := b.unpackFrom(ctx, guestRuntimeRelease, own != guestRuntimeRelease, "crun", true, "crun")
	if err != nil {
		return Guest{}, err
	}
	return Guest{Kernel: filepath.Join(kernel, "usr/bin/linux.uml"), Modules: modules[0], Tree: tree}, nil
}
