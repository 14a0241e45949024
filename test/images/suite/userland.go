package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// userland is the root folder of an image that is being made.
type userland struct {
	root   string
	debian string // unpacked Debian packages with the programs
	err    error  // the first error; later steps do nothing
}

// newUserland makes a root folder with busybox's programs and the usual accounts.
func newUserland(ctx context.Context, dir, debian, busybox string) *userland {
	u := &userland{root: dir, debian: debian}
	for _, d := range []string{
		"bin",
		"lib",
		"lib64",
		"etc",
		"root",
		"tmp",
		"home",
		"dev",
		"proc",
		"sys",
		"run",
		"usr/local/bin",
		"usr/share",
		"var/tmp",
		"var/www",
		"var/log",
		"var/lib",
	} {
		u.folder(d, 0o755)
	}
	u.mode("tmp", 0o777|os.ModeSticky)
	u.mode("var/tmp", 0o777|os.ModeSticky)
	u.mode("root", 0o700)
	for link, to := range map[string]string{
		"sbin":      "bin",
		"usr/bin":   "../bin",
		"usr/sbin":  "../bin",
		"usr/lib":   "../lib",
		"usr/lib64": "../lib64",
	} {
		u.link(link, to)
	}
	u.copy("bin/busybox", busybox, 0o755)
	for _, name := range u.applets(ctx) {
		if name != "busybox" {
			u.link("bin/"+name, "busybox")
		}
	}
	u.write("etc/passwd", `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
bin:x:2:2:bin:/bin:/bin/false
sys:x:3:3:sys:/dev:/bin/false
mail:x:8:8:mail:/var/spool/mail:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
operator:x:37:37:Operator:/var:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
`)
	u.write("etc/group", `root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
mail:x:8:
www-data:x:33:
operator:x:37:
users:x:100:
nogroup:x:65534:
`)
	u.write("etc/shadow", "root:*:::::::\n")
	u.mode("etc/shadow", 0o640)
	u.write("etc/nsswitch.conf", "hosts: files dns\n")
	return u
}

// do runs a step unless one has failed before.
func (u *userland) do(step func() error) {
	if u.err == nil {
		u.err = step()
	}
}

func (u *userland) path(name string) string { return filepath.Join(u.root, name) }

func (u *userland) folder(name string, mode os.FileMode) {
	u.do(func() error { return os.MkdirAll(u.path(name), mode) })
}

func (u *userland) mode(name string, mode os.FileMode) {
	u.do(func() error { return os.Chmod(u.path(name), mode) })
}

func (u *userland) link(name, to string) {
	u.do(func() error {
		if err := os.Symlink(to, u.path(name)); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
}

// replaceLink makes a link and replaces an existing file.
func (u *userland) replaceLink(name, to string) {
	u.do(func() error {
		if err := os.Remove(u.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(to, u.path(name))
	})
}

func (u *userland) write(name, text string) {
	u.do(func() error {
		if err := os.MkdirAll(filepath.Dir(u.path(name)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(u.path(name), []byte(text), 0o644)
	})
}

// add appends to a file.
func (u *userland) add(name, text string) {
	u.do(func() error {
		old, err := os.ReadFile(u.path(name))
		if err != nil {
			return err
		}
		return os.WriteFile(u.path(name), append(old, text...), 0o644)
	})
}

// copy copies a file to the name and replaces an existing file.
func (u *userland) copy(name, from string, mode os.FileMode) {
	u.do(func() error {
		if err := os.MkdirAll(filepath.Dir(u.path(name)), 0o755); err != nil {
			return err
		}
		if err := os.Remove(u.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		src, err := os.Open(from)
		if err != nil {
			return err
		}
		defer src.Close()
		dst, err := os.OpenFile(u.path(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		if _, err := io.Copy(dst, src); err != nil {
			dst.Close()
			return err
		}
		if err := dst.Close(); err != nil {
			return err
		}
		return os.Chmod(u.path(name), mode) // the mode is set again because the umask may have reduced it
	})
}

func (u *userland) applets(ctx context.Context) []string {
	var names []string
	u.do(func() error {
		out, err := exec.CommandContext(ctx, u.path("bin/busybox"), "--list").Output()
		names = strings.Fields(string(out))
		return err
	})
	return names
}

var loaded = regexp.MustCompile(`(/\S+) \(0x`)

// programs copies programs from the Debian tree, with the libraries that they load.
func (u *userland) programs(ctx context.Context, names ...string) {
	for _, name := range names {
		u.do(func() error {
			inside := ""
			for _, dir := range []string{"/usr/bin/", "/usr/sbin/"} {
				if info, err := os.Stat(filepath.Join(u.debian, dir, name)); err == nil && info.Mode().IsRegular() {
					inside = dir + name
				}
			}
			if inside == "" {
				return fmt.Errorf("find %s in Debian's packages: not there", name)
			}
			u.copy("bin/"+name, filepath.Join(u.debian, inside), 0o755)
			return u.libraries(ctx, inside)
		})
	}
}

// libraries copies the libraries that a program loads, according to the dynamic linker of the tree, and the modules
// that are loaded later for name resolution.
func (u *userland) libraries(ctx context.Context, program string) error {
	linkers, err := filepath.Glob(filepath.Join(u.debian, "lib64/ld-linux-*.so.*"))
	if err != nil || len(linkers) == 0 {
		if linkers, err = filepath.Glob(filepath.Join(u.debian, "lib/ld-linux-*.so.*")); err != nil ||
			len(linkers) == 0 {
			return fmt.Errorf("find the dynamic linker in %s: none (%v)", u.debian, err)
		}
	}
	cmd := exec.CommandContext(ctx, strings.TrimPrefix(linkers[0], u.debian), "--list", program)
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: u.debian}, "/"
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "statically linked") {
		return fmt.Errorf("list libraries of %s: %w: %s", program, err, out)
	}
	files := []string{}
	for _, m := range loaded.FindAllStringSubmatch(string(out), -1) {
		files = append(files, m[1])
	}
	for _, m := range []string{"libnss_dns.so.2", "libnss_files.so.2"} {
		found, err := filepath.Glob(filepath.Join(u.debian, "usr/lib/*-linux-gnu*", m))
		if err != nil {
			return err
		}
		for _, f := range found {
			files = append(files, strings.TrimPrefix(f, u.debian+"/usr"))
		}
	}
	for _, f := range files {
		f = strings.TrimPrefix(f, "/usr") // in the image, these folders of /usr are links to those of the root
		if _, err := os.Stat(u.path(f)); err == nil {
			continue
		}
		u.copy(f, filepath.Join(u.debian, f), 0o755)
	}
	return u.err
}

// own changes the owner of a file or folder.
func (u *userland) own(name string, uid, gid int) {
	u.do(func() error { return os.Chown(u.path(name), uid, gid) })
}

// tree copies a folder of the Debian tree.
func (u *userland) tree(name, from string) {
	u.do(func() error { return os.CopyFS(u.path(name), os.DirFS(filepath.Join(u.debian, from))) })
}
