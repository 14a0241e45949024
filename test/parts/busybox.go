package parts

import (
	"compress/bzip2"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Busybox returns a static busybox in its default configuration, compiled from Debian's source package. Debian's own
// binary cannot be used in replacements for other images: its shell drops environment names such as data-1, and prefers
// its own programs to those of the image.
func (b *Builder) Busybox(ctx context.Context) (string, error) {
	release, err := codename()
	if err != nil {
		return "", fmt.Errorf("make busybox: %w", err)
	}
	home := filepath.Join(b.cache, "debian", "busybox")
	file := filepath.Join(home, "busybox-"+release)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("make busybox: %w", err)
	}
	unlock, err := lock(filepath.Join(home, "lock"), func() { b.say("busybox: another run is at it, waiting") })
	if err != nil {
		return "", fmt.Errorf("make busybox: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	tmp, err := scratch(home)
	if err != nil {
		return "", fmt.Errorf("make busybox: %w", err)
	}
	defer os.RemoveAll(tmp)
	start := time.Now()
	b.say("busybox from Debian's source: building (about 1 min)")
	archive, err := fetchSource(ctx, filepath.Join(tmp, "apt"), "busybox")
	if err != nil {
		return "", fmt.Errorf("fetch source of busybox: %w", err)
	}
	source := filepath.Join(tmp, "source")
	if err := unpackSource(ctx, archive, source); err != nil {
		return "", fmt.Errorf("unpack %s: %w", filepath.Base(archive), err)
	}
	if err := compileBusybox(ctx, source); err != nil {
		return "", fmt.Errorf("compile busybox: %w", err)
	}
	if err := os.Rename(filepath.Join(source, "busybox"), file); err != nil {
		return "", fmt.Errorf("keep busybox: %w", err)
	}
	b.say("busybox: ready after %d s", int(time.Since(start).Seconds()))
	return file, nil
}

// fetchSource downloads the original archive of a source package. apt verifies it with the signed list.
func fetchSource(ctx context.Context, dir, name string) (string, error) {
	a, err := newApt(dir)
	if err != nil {
		return "", err
	}
	sources := filepath.Join(dir, "sources")
	if err := sourceLists(sources); err != nil {
		return "", fmt.Errorf("derive source lists: %w", err)
	}
	a.opts = append(a.opts, "-o", "Dir::Etc::SourceList=/dev/null", "-o", "Dir::Etc::SourceParts="+sources)
	updated := a.run(ctx, "update")
	if err := a.run(ctx, "source", "--download-only", name); err != nil {
		return "", fmt.Errorf("%w (lists: %v)", err, updated)
	}
	found, err := filepath.Glob(filepath.Join(dir, "out", name+"_*.orig.tar.bz2"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("find the archive among what apt fetched: %d found (%v)", len(found), err)
	}
	return found[0], nil
}

var (
	oneLineDeb = regexp.MustCompile(`(?m)^deb\s`)
	typesDeb   = regexp.MustCompile(`(?m)^Types:.*$`)
)

// sourceLists writes the system's apt sources into a folder, for source packages instead of binary ones.
func sourceLists(into string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	var files []string
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list",
		"/etc/apt/sources.list.d/*.sources"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		text := string(data)
		if strings.HasSuffix(f, ".sources") {
			text = typesDeb.ReplaceAllString(text, "Types: deb-src")
		} else {
			text = oneLineDeb.ReplaceAllString(text, "deb-src ")
		}
		if err := os.WriteFile(filepath.Join(into, filepath.Base(f)), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unpackSource unpacks a source archive. It needs no bzip2 program, which small systems lack.
func unpackSource(ctx context.Context, archive, into string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "tar", "-x", "--strip-components=1", "-C", into)
	cmd.Stdin = bzip2.NewReader(f)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, tail(string(out), 3))
	}
	return nil
}

// compileBusybox builds the default configuration, linked statically. It disables the traffic shaper (tc), which does
// not compile with newer kernel headers.
func compileBusybox(ctx context.Context, source string) error {
	if err := run(ctx, source, "make", "defconfig"); err != nil {
		return err
	}
	config := filepath.Join(source, ".config")
	data, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	text := strings.NewReplacer("# CONFIG_STATIC is not set",
		"CONFIG_STATIC=y", "CONFIG_TC=y", "# CONFIG_TC is not set").Replace(string(data))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	if err := run(ctx, source, "sh", "-c", "yes '' | make oldconfig"); err != nil {
		return err
	}
	return run(ctx, source, "make", "-j4", "busybox")
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	// If this runs below the project's make, the options of that make must not apply here.
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "MFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tail(string(out), 15))
	}
	return nil
}

// StaticBusybox returns Debian's own static busybox, for images that replace no other image.
func (b *Builder) StaticBusybox(ctx context.Context) (string, error) {
	tree, err := b.Unpack(ctx, "shell", false, "busybox-static")
	if err != nil {
		return "", err
	}
	return filepath.Join(tree, "bin", "busybox"), nil // bin is a link to usr/bin, where newer releases have it
}
