package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
)

// saved returns the output of iptables-save or ip6tables-save.
func saved(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program + "-save").CombinedOutput()
	if err != nil {
		t.Fatalf("%s-save: %v: %s", program, err, out)
	}
	return string(out)
}

// TestChainsAreCreatedOnce runs in a new network namespace. The expected rules are those that
// upstream's kubelet v1.36.3 creates.
func TestChainsAreCreatedOnce(t *testing.T) {
	need.Root(t, "a network namespace")
	for _, p := range []string{"iptables", "ip6tables"} {
		if _, err := exec.LookPath(p); err != nil {
			need.Skip(t, "this machine has no iptables", err)
		}
	}
	runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		need.Skip(t, "this kernel makes no network namespaces", err)
	}
	var log bytes.Buffer
	k := New(Config{Exec: Exec, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, after := range []string{"the first time", "again", "a flush"} {
		if after == "a flush" {
			for _, args := range [][]string{{"-F"}, {"-X"}, {"-t", "mangle", "-X"}} {
				if out, err := exec.Command("iptables", args...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
		k.ensure(t.Context())
		v4, v6 := saved(t, "iptables"), saved(t, "ip6tables")
		for _, line := range []string{
			":KUBE-IPTABLES-HINT - ", ":KUBE-FIREWALL - ", "-A INPUT -j KUBE-FIREWALL\n",
			"-A OUTPUT -j KUBE-FIREWALL\n",
			`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m ` +
				`conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP` + "\n",
		} {
			if n := strings.Count(v4, line); n != 1 {
				t.Errorf("%s: %q is there %d times in\n%s", after, line, n, v4)
			}
		}
		if !strings.Contains(v6, ":KUBE-IPTABLES-HINT - ") || strings.Contains(v6, "FIREWALL") {
			t.Errorf("%s: ip6tables has\n%s", after, v6)
		}
	}
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
}

// TestFailureIsLoggedOnce: if the programs are missing, they are tried again every period, and the
// error is logged once.
func TestFailureIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		asked := map[string]int{}
		k := New(Config{
			Log: slog.New(slog.NewTextHandler(&log, nil)),
			Exec: func(_ context.Context, program string, args ...string) error {
				asked[program]++
				return errors.New(program + " is not installed")
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.Run(ctx) }()
		time.Sleep(checkPeriod*10 + time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// One call for each check.
		if asked["iptables"] != 11 || asked["ip6tables"] != 11 {
			t.Errorf("asked %v", asked)
		}
		if n := strings.Count(log.String(), "failed to ensure"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
	})
}

// TestXtablesLockHeld: another process may hold the xtables lock for longer than the timeout of a
// check. A chain or rule is not created if its check failed, because it may exist.
func TestXtablesLockHeld(t *testing.T) {
	status := func(code int) error {
		err := exec.Command("sh", "-c", fmt.Sprint("exit ", code)).Run()
		return fmt.Errorf("run iptables: %w", err)
	}
	for code, want := range map[int]string{
		1: "-S -N -S -N -C -A -C -I -C -I", // nothing exists
		4: "-S",                            // the lock is held by another process
		3: "-S",                            // the program is not compatible with the kernel
	} {
		var called []string
		k := New(Config{
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Exec: func(_ context.Context, program string, args ...string) error {
				verb := args[4]
				if program == "iptables" {
					called = append(called, verb)
				}
				if verb == "-S" || verb == "-C" {
					return status(code)
				}
				return nil
			},
		})
		k.ensure(t.Context())
		if got := strings.Join(called, " "); got != want {
			t.Errorf("looks end with %d: called %s, want %s", code, got, want)
		}
	}
}
