package parts

import (
	"context"
	"fmt"
	"path/filepath"
)

// The Debian releases of the packages for a User-Mode Linux guest. trixie no
// longer has the kernel. crun of bookworm, 1.8.1, is too old: it fails with
// containerd 2.4 ("unknown version specified"). crun is used because it starts a
// container with the fewest processes and system calls, which are slow in the guest.
const (
	guestKernelRelease  = "bookworm"
	guestRuntimeRelease = "trixie"
)

// Guest has the parts of a User-Mode Linux guest.
type Guest struct {
	Kernel  string // a program that runs on this machine
	Modules string // the folder of the kernel's modules
	Tree    string // crun and its libraries, an overlay for the guest's root
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
