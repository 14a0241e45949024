package builtin

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// The environment of a process that is to be killed while it works on the
// reference pods' volumes below a directory.
const (
	victimRoot  = "KEELSON_TEST_VICTIM_ROOT"
	killsWanted = "KEELSON_TEST_KILLS"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(victimRoot); root != "" {
		if err := victim(root); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// victim prepares the volumes, mounts the sub-paths, and releases everything,
// and says where it is. It lives as long as nobody kills it.
func victim(root string) error {
	pods, err := referencePods()
	if err != nil {
		return err
	}
	changed := make(chan types.UID, 1000)
	m := newManager(root, referenceObjects(), &fakeTokens{life: time.Hour}, &fakeEvents{}, func(uid types.UID) { changed <- uid }, false, nil)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	fmt.Println("begin")
	for _, p := range pods {
		m.Want(p)
	}
	all := func(ok func(p *v1.Pod) bool) {
		for {
			n := 0
			for _, p := range pods {
				if ok(p) {
					n++
				}
			}
			if n == len(pods) {
				return
			}
			<-changed
		}
	}
	all(func(p *v1.Pod) bool { return m.State(p.UID).Ready })
	for _, p := range pods {
		for _, c := range pod.Containers(p) {
			if _, err := m.Mounts(ctx, p, c, nil); err != nil {
				return err
			}
		}
	}
	fmt.Println("ready")
	for _, p := range pods {
		m.Release(pod.RefOf(p))
	}
	all(func(p *v1.Pod) bool { done, _ := m.Released(p.UID); return done })
	fmt.Println("released")
	stop()
	return <-done
}

// startVictim runs a victim until it says the word.
func startVictim(t *testing.T, root, word string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimRoot+"="+root)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	waitFor(t, lines, word)
	return cmd, lines
}

func waitFor(t *testing.T, lines *bufio.Scanner, word string) {
	t.Helper()
	for lines.Scan() {
		if lines.Text() == word {
			return
		}
		if s := lines.Text(); s != "begin" && s != "ready" {
			t.Fatalf("the process said %q", s)
		}
	}
	t.Fatalf("the process ended before it was %s", word)
}

// The agent is killed at any moment of preparing and of releasing. The next one
// finds what is there and ends in the same state as if nothing had happened.
func TestKilledAtAnyStep(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	n := newTestNode(t)
	n.stop()
	n.objects.maps, n.objects.secrets = referenceObjects().maps, referenceObjects().secrets
	pods, err := referencePods()
	if err != nil {
		t.Fatal(err)
	}
	kills := 12
	if s := os.Getenv(killsWanted); s != "" {
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}

	// One undisturbed life tells how long each part takes.
	cmd, lines := startVictim(t, n.root, "begin")
	at := time.Now()
	took := map[string]time.Duration{}
	for _, word := range []string{"ready", "released"} {
		waitFor(t, lines, word)
		took[word] = time.Since(at)
		at = time.Now()
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, n)

	for i := range kills {
		from, until := "begin", "ready"
		if i%2 == 1 {
			from, until = "ready", "released"
		}
		cmd, _ := startVictim(t, n.root, from)
		delay := rand.N(took[until] + took[until]/4)
		time.Sleep(delay)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, or done already
		what := fmt.Sprintf("kill %d, %v after %s", i, delay, from)

		n.start()
		if from == "begin" {
			for _, p := range pods {
				n.ready(p)
			}
			for _, p := range pods {
				for _, c := range pod.Containers(p) {
					n.mounts(p, c)
				}
			}
			wantReference(t, n)
		}
		for _, p := range pods {
			n.release(p)
		}
		wantNothingLeft(t, n)
		for _, p := range pods {
			if err := n.RemoveDir(t.Context(), p.UID); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := os.Lstat(volume.PodDir(n.root, p.UID)); !os.IsNotExist(err) {
				t.Errorf("%s: the directory of %s is left", what, p.Name)
			}
		}
		n.stop()
		if t.Failed() {
			t.Fatalf("failed after %s", what)
		}
	}
}
