package inputs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Inside runs a kubelet in this process, if the process was started for that. It does not return then.
func Inside() {
	if err := inside(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func inside() error {
	if text := os.Getenv(insideEnv); text != "" {
		var s Start
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return fmt.Errorf("decode start: %w", err)
		}
		runtime.LockOSThread()
		if err := enter(s.Cgroup); err != nil {
			return err
		}
		// Namespaces belong to this thread. After exec all threads of the new program have them.
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, insideEnv+"=") })
		return fmt.Errorf("begin inside: %w", syscall.Exec(self, os.Args[:1], append(env, enteredEnv+"="+text)))
	}
	text := os.Getenv(enteredEnv)
	if text == "" {
		return nil
	}
	var s Start
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("decode start: %w", err)
	}
	seen, err := watch(s)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		return fmt.Errorf("show what was seen: %w", err)
	}
	os.Exit(0)
	return nil
}

// enter puts this thread into a cgroup and namespaces of its own.
func enter(cgroup string) error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		in := m.FSType == "cgroup" || m.FSType == "cgroup2"
		return !in || !strings.HasPrefix(m.Mountpoint, "/sys/fs/cgroup/"), false
	})
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	for _, m := range mounts {
		procs := filepath.Join(m.Mountpoint, cgroup, "cgroup.procs")
		if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
		if err := unix.Mount("cgroup", m.Mountpoint, m.FSType, 0, hierarchy(m)); err != nil {
			return fmt.Errorf("mount %s: %w", m.Mountpoint, err)
		}
	}
	for _, dir := range []string{"/var/lib", "/var/log", "/run"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make / read-only: %w", err)
	}
	return loopbackUp()
}

// hierarchy are the options by which a hierarchy of version 1 is mounted again.
func hierarchy(m *mountinfo.Info) string {
	var out []string
	for o := range strings.SplitSeq(m.VFSOptions, ",") {
		switch {
		case o == "rw" || o == "ro":
		case strings.HasPrefix(o, "name="):
			out = append(out, "none", o)
		default:
			out = append(out, o)
		}
	}
	if m.FSType == "cgroup2" {
		return ""
	}
	return strings.Join(out, ",")
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// patience is how long a kubelet may take to serve or to exit.
const patience = 30 * time.Second

// watch starts the kubelet, asks it, and ends it.
func watch(s Start) (seen Seen, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience,
		errors.New("neither served nor ended within 30 s"))
	defer cancel()
	cmd := exec.Command(s.Binary, s.Args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return seen, fmt.Errorf("start %s: %w", s.Binary, err)
	}
	ended := make(chan struct{})
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		err := cmd.Wait()
		close(ended)
		stop(err) // it cannot be queried any more
	}()
	seen, err = ask(ctx, s.Pods)
	select {
	case <-ended:
		return Seen{Ended: lastWords(log.String())}, nil
	default:
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, lastWords(log.String()))
	}
	err = errors.Join(err, cmd.Process.Kill())
	<-ended
	return seen, err
}

// ask waits for the kubelet's server and, if any are expected, for its pods: as many of them, or
// those that there are when the time is over.
func ask(ctx context.Context, pods int) (Seen, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the certificate is its own
	}}
	var seen Seen
	for {
		var shown struct {
			Kubelet json.RawMessage `json:"kubeletconfig"`
		}
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		err := get(ctx, client, "/configz", &shown)
		if err == nil && pods > 0 {
			err = get(ctx, client, "/pods", &list)
		}
		if err == nil {
			seen = Seen{
				Configz: shown.Kubelet,
				Pods:    list.Items,
			}
		}
		if err == nil && len(list.Items) >= pods {
			return seen, nil
		}
		select {
		case <-ctx.Done():
			if seen.Configz != nil {
				return seen, nil
			}
			return seen, errors.Join(context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond): // there is no event for a listening server
		}
	}
}

func get(ctx context.Context, client *http.Client, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:10250"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, b)
	}
	return json.Unmarshal(b, into)
}

// lastWords returns the last lines of a log.
func lastWords(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-1000):], "\n")
}
