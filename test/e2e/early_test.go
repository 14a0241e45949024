//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/images"
)

const (
	earlyDeletions = 60 // by default; KEELSON_EARLY_DELETIONS says otherwise
	earlyAtOnce    = 10
)

// footprint is what sandboxes have on the node that the runtime does not list. It leaks if the runtime
// loses track of a sandbox.
type footprint struct{ shims, namespaces, addresses, links int }

func (n *node) footprint() (f footprint, err error) {
	f.shims = len(n.shims())
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(n.Dir, "containerd", "state")))
	if err != nil {
		return f, err
	}
	for _, m := range mounts {
		if m.FSType == "nsfs" {
			f.namespaces++
		}
	}
	addresses, err := filepath.Glob(filepath.Join(n.Dir, "ipam", "*", "10.*"))
	if err != nil {
		return f, err
	}
	f.addresses = len(addresses)
	bridge, err := n.bridge()
	if err != nil {
		return f, err
	}
	ports, err := os.ReadDir(filepath.Join("/sys/class/net", bridge, "brif"))
	if err != nil {
		return f, err
	}
	f.links = len(ports)
	return f, nil
}

// bridge is the interface that the node's address is on.
func (n *node) bridge() (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.String() == n.NodeIP() {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("find the bridge with address %s: there is none", n.NodeIP())
}

// TestDeletedWhileStarting deletes pods 100 to 600 ms after they were created, while the
// runtime makes their sandboxes and containers. The runtime keeps no shim, network
// namespace, address or link of them.
func TestDeletedWhileStarting(t *testing.T) {
	n := shared(t)
	s := n.namespace(t)
	s.deleteEarly(false, func() {})
}

// deleteEarly creates and deletes pods, several at a time, and calls between for each group of them
// before the deletion. If that cancels calls, the runtime may lose shims and addresses.
func (s *space) deleteEarly(cancelled bool, between func()) {
	s.t.Helper()
	lost := func() int {
		if !cancelled {
			return 0
		}
		return s.lostShims()
	}
	total := earlyDeletions
	if text := os.Getenv("KEELSON_EARLY_DELETIONS"); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			s.t.Fatal(err)
		}
	}
	s.says(s.demo("first", []string{"echo", "the image is there"}, never))
	s.delete("first", 0)
	s.gone("first")
	before, err := s.footprint()
	if err != nil {
		s.t.Fatal(err)
	}
	before.shims -= lost()
	seed := uint64(time.Now().UnixNano())
	s.t.Logf("%d pods, seed %d", total, seed)
	lot := rand.New(rand.NewPCG(seed, 0))
	pods := s.Cluster.Client.CoreV1().Pods(s.ns)
	for made := 0; made < total; made += earlyAtOnce {
		var group sync.WaitGroup
		for i := made; i < min(made+earlyAtOnce, total); i++ {
			name, after := fmt.Sprintf("early-%03d", i), time.Duration(100+lot.IntN(500))*time.Millisecond
			group.Go(func() {
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: corev1.PodSpec{
						NodeName:                      s.Kubelet.Node,
						TerminationGracePeriodSeconds: ptr(int64(1)),
						Containers: []corev1.Container{
							{Name: "main", Image: images.Demo, Args: []string{"serve"}},
						},
					},
				}
				if _, err := pods.Create(s.t.Context(), p, metav1.CreateOptions{}); err != nil {
					s.t.Error(err)
					return
				}
				time.Sleep(after)
				if err := pods.Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
					s.t.Error(err)
				}
			})
		}
		between()
		group.Wait()
		s.until("all pods to be gone", func() (string, bool) {
			list, err := pods.List(s.t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error(), false
			}
			return fmt.Sprint(len(list.Items)), len(list.Items) == 0
		})
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second) // what is left after that stays
	defer cancel()
	var after footprint
	for {
		if after, err = s.footprint(); err != nil {
			s.t.Fatal(err)
		}
		after.shims -= lost()
		if after.within(before) || ctx.Err() != nil {
			break
		}
		if cancelled {
			freed, err := s.freeLostAddresses()
			if err != nil {
				s.t.Fatal(err)
			}
			if freed > 0 {
				s.t.Logf("freed %d addresses that the runtime lost", freed)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Logf("left: %+v, and %d shims that the runtime lost", after, lost())
	if !after.within(before) {
		s.t.Errorf("after %d pods that were deleted early the node has %+v, before them %+v\n%s", total, after, before,
			strings.Join(s.shims(), "\n"))
	}
}

// within reports whether no count is higher than before. Counts may be lower: the pods of the
// test before this one were still being removed.
func (f footprint) within(before footprint) bool {
	return f.shims <= before.shims && f.namespaces <= before.namespaces && f.addresses <= before.addresses &&
		f.links <= before.links
}

// shims are the command lines of the runtime's shims.
func (n *node) shims() (lines []string) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte("containerd-shim")) && bytes.Contains(line, []byte(n.Dir+"/")) {
			lines = append(lines, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return lines
}

// TestKilledWhileStarting is TestDeletedWhileStarting with the agent killed meanwhile,
// which cancels its calls. The next agent removes everything that the runtime lists. containerd
// 2.4 itself leaks shims and addresses, which it does not list; those do not count.
func TestKilledWhileStarting(t *testing.T) {
	n := shared(t)
	s := n.namespace(t)
	s.deleteEarly(true, func() {
		time.Sleep(300 * time.Millisecond)
		n.Kubelet.Kill9()
		if err := n.Kubelet.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

var shimID = regexp.MustCompile(`-id ([0-9a-f]{64})`)

// lostShims counts the shims that run although containerd has noted that their start
// failed: the program that starts them was killed with the call after it had done so.
func (n *node) lostShims() (lost int) {
	log, err := os.ReadFile(filepath.Join(n.Logs, "containerd.log"))
	if err != nil {
		return 0
	}
	for _, line := range n.shims() {
		id := shimID.FindStringSubmatch(line)
		if id == nil {
			continue
		}
		for entry := range bytes.Lines(log) {
			if bytes.Contains(entry, []byte(id[1])) &&
				bytes.Contains(entry, []byte("failed to start shim: start failed")) {
				lost++
				break
			}
		}
	}
	return lost
}

// freeLostAddresses removes the reservations of addresses for sandboxes whose network containerd has noted that it
// could not set up: the bridge plugin was killed with the call, and host-local, its child, reserved the address after
// the plugin's DEL. It returns their number.
func (n *node) freeLostAddresses() (freed int, err error) {
	log, err := os.ReadFile(filepath.Join(n.Logs, "containerd.log"))
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(n.Dir, "ipam", "*", "10.*"))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		reserved, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the sandbox has been removed meanwhile
		}
		if err != nil {
			return freed, err
		}
		id, _, _ := strings.Cut(string(reserved), "\r\n")
		for entry := range strings.Lines(string(log)) {
			if id != "" && strings.Contains(entry, "failed to setup network for sandbox") &&
				strings.Contains(entry, id) {
				if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return freed, err
				}
				freed++
				break
			}
		}
	}
	return freed, nil
}
