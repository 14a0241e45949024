package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Unpack fetches Debian packages of the running release, unpacks them into one folder of the cache, and returns the
// folder. It installs and configures nothing, and does not change the system's package lists and package database. With
// closure it includes all dependencies, so that the folder has everything that the programs load.
func (b *Builder) Unpack(ctx context.Context, name string, closure bool, packages ...string) (string, error) {
	release, err := codename()
	if err != nil {
		return "", fmt.Errorf("unpack %s from Debian: %w", name, err)
	}
	return b.unpackFrom(ctx, release, false, name, closure, packages...)
}

// unpackFrom is Unpack from a given release. other is true if this is not the running release. Then the system has no
// package sources for it.
func (b *Builder) unpackFrom(
	ctx context.Context, release string, other bool, name string, closure bool, packages ...string,
) (string, error) {
	key := sha256.Sum256(fmt.Append(nil, closure, packages))
	home := filepath.Join(b.cache, "debian", name)
	dir := filepath.Join(home, release+"-"+hex.EncodeToString(key[:])[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("unpack %s from Debian: %w", name, err)
	}
	unlock, err := lock(filepath.Join(home, "lock"),
		func() { b.say("%s from Debian: another run is at it, waiting", name) })
	if err != nil {
		return "", fmt.Errorf("unpack %s from Debian: %w", name, err)
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	tmp, err := scratch(home)
	if err != nil {
		return "", fmt.Errorf("unpack %s from Debian: %w", name, err)
	}
	defer os.RemoveAll(tmp)

	start := time.Now()
	b.say("%s from Debian %s: fetching", name, release)
	a, err := newApt(filepath.Join(tmp, "apt"))
	if err == nil && other {
		err = a.from(ctx, release)
	}
	if err != nil {
		return "", fmt.Errorf("fetch %s from Debian: %w", name, err)
	}
	debs, err := a.fetch(ctx, closure, packages)
	if err != nil {
		return "", fmt.Errorf("fetch %s from Debian: %w", name, err)
	}
	tree := filepath.Join(tmp, "tree")
	if err := mergedUsr(tree); err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	for _, deb := range debs {
		if err := unpack(ctx, deb, tree); err != nil {
			return "", fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	if err := os.Rename(tree, dir); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, err)
	}
	b.say("%s from Debian %s: ready after %d s", name, release, int(time.Since(start).Seconds()))
	return dir, nil
}

// mergedUsr makes the links from /bin, /sbin, /lib and /lib64 to the folders in /usr. Normally the package base-files
// has them.
func mergedUsr(tree string) error {
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(tree, "usr", d), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+d, filepath.Join(tree, d)); err != nil {
			return err
		}
	}
	return nil
}

// unpack unpacks a package with tar, because dpkg-deb would replace the links of a merged /usr with folders.
func unpack(ctx context.Context, deb, tree string) error {
	cmd := exec.CommandContext(ctx,
		"sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"`, "unpack", deb, tree)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, tail(string(out), 3))
	}
	return nil
}

// fetch downloads packages into a private folder, using package lists of its own, and returns the files.
func (a *apt) fetch(ctx context.Context, closure bool, packages []string) ([]string, error) {
	// If a list of another package source cannot be fetched, this is no error as long as the packages are found.
	updated := a.run(ctx, "update")
	if closure {
		if err := a.run(ctx,
			append([]string{"install", "--download-only", "--yes", "--no-install-recommends", "-o",
				"Debug::NoLocking=true"}, packages...)...); err != nil {
			return nil, errors.Join(updated, err)
		}
		return filepath.Glob(filepath.Join(a.dir, "cache", "archives", "*.deb"))
	}
	if err := a.run(ctx, append([]string{"download"}, packages...)...); err != nil {
		return nil, errors.Join(updated, err)
	}
	return filepath.Glob(filepath.Join(a.dir, "out", "*.deb"))
}

// apt is apt-get with lists, cache and package database in a folder of its own.
type apt struct {
	dir  string
	opts []string
}

func newApt(dir string) (*apt, error) {
	for _, d := range []string{"lists/partial", "cache/archives/partial", "out"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	// With an empty package database apt fetches all dependencies.
	status := filepath.Join(dir, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	return &apt{dir: dir, opts: []string{
		"-q", "-o", "Dir::State::lists=" + filepath.Join(dir, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
		"-o", "Dir::State::status=" + status,
		"-o", "APT::Sandbox::User=root", // the private folders belong to this user
		"-o", "APT::Update::Post-Invoke-Success::=", "-o", "Acquire::Languages=none",
		"-o", "APT::Get::List-Cleanup=false",
	}}, nil
}

// from configures apt to fetch packages of another release from the same servers as the system's own. apt verifies them
// with Debian's keys.
func (a *apt) from(ctx context.Context, release string) error {
	cmd := exec.CommandContext(ctx,
		"apt-get", append(append([]string{}, a.opts...),
			"indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
			"Created-By: Packages")...)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("ask apt-get for its sources: %w", err)
	}
	own, err := codename()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == own && f[2] == "main" {
			list := filepath.Join(a.dir, "sources.list")
			a.opts = append(a.opts, "-o", "Dir::Etc::sourcelist="+list, "-o", "Dir::Etc::sourceparts=-")
			return os.WriteFile(list,
				fmt.Appendf(nil, "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", f[0],
					release), 0o644)
		}
	}
	return fmt.Errorf("find where the packages of Debian %s come from: apt-get does not know", own)
}

// run runs apt-get in the folder out.
func (a *apt) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append(append([]string{}, a.opts...), args...)...)
	cmd.Dir = filepath.Join(a.dir, "out")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, tail(string(out), 8))
	}
	return nil
}

// codename returns the codename of the running Debian release.
func codename() (string, error) {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"`), nil
		}
	}
	return "", fmt.Errorf("read /etc/os-release: no VERSION_CODENAME")
}
