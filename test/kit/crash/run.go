package crash

import (
	"bufio"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// killsEnv says how many kills are wanted.
	killsEnv = "KEELSON_TEST_KILLS"
	// orphansEnd is how long programs that a victim started may run after its death.
	orphansEnd = 2 * time.Minute
)

// A Moment is a point in the victim's run that the test itself sees, such as a call of the victim to the test.
type Moment struct {
	Name string
	// Arm makes kill be called when the moment comes. The function it returns cancels that.
	Arm func(kill func()) (disarm func())
}

// Scene is a work and how it is killed.
type Scene struct {
	Work string // as Main knows it
	Dir  string // that the work is done on
	// Kills is how many there are, unless the environment says otherwise.
	Kills int
	// Prepare prepares the machine for a run of the victim; nil: nothing has to be prepared.
	Prepare func()
	// Moments are further points at which the victim is killed. Every other kill is at one of them.
	Moments []Moment
	// Alone delays Check until the programs that the victim had started have ended.
	Alone bool
	// Check recovers after a kill. It fails the test if anything is not as it should be.
	Check func(kill int, how string)
}

// Deaths is how victims were killed.
type Deaths struct {
	By      map[string]int
	Kills   int
	covered bool // there was a kill for each change of a run
}

// Want fails the test unless a victim died in each of these ways. It checks nothing if
// there were fewer kills than changes in a run.
func (d Deaths) Want(t *testing.T, hows ...string) {
	t.Helper()
	for _, how := range hows {
		if d.covered && d.By[how] == 0 {
			t.Errorf("no process died %s", how)
		}
	}
}

// Run runs the victim once undisturbed. Then it kills victims at changes that are spread
// over the run, at each moment, and some at random times. A victim that ended before it
// could be killed does not count as a kill.
func Run(t *testing.T, s Scene) Deaths {
	t.Helper()
	kills := s.Kills
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatalf("read %s: %v", killsEnv, err)
		}
	}
	first := s.live(t, plan{})
	if first.how != "" || first.failed != nil {
		t.Fatalf("%s undisturbed: killed %q, %v, saying %q", s.Work, first.how, first.failed, first.logged)
	}
	s.check(t, 0, "undisturbed")

	died, killed := map[string]int{}, 0
	turns := turns{changes: first.changes, moments: len(s.Moments), took: first.took, of: kills}
	for life := 0; killed < kills; life++ {
		if life > 3*kills+10 {
			t.Fatalf("%s was killed %d times in %d lives", s.Work, killed, life)
		}
		p, moment := turns.next()
		if moment >= 0 {
			p.moment = &s.Moments[moment]
		}
		got := s.live(t, p)
		if got.how == "" && got.failed != nil {
			t.Fatalf("%s ended by itself: %v, saying %q", s.Work, got.failed, got.logged)
		}
		if got.how == "" { // the machine was busier during the first run
			turns.took = min(turns.took, got.took)
		}
		if got.how != "" {
			killed++
			died[got.how]++
		}
		if s.Alone {
			got.over()
		}
		s.check(t, killed, got.how)
		if !s.Alone {
			got.over()
		}
	}
	t.Logf("%s: %d kills over %d changes of a life", s.Work, killed, first.changes)
	for _, how := range slices.Sorted(maps.Keys(died)) {
		t.Logf("%5d %s", died[how], how)
	}
	return Deaths{died, killed, turns.atChange > first.changes*5/4}
}

func (s Scene) check(t *testing.T, kill int, how string) {
	t.Helper()
	s.Check(kill, how)
	if t.Failed() {
		t.Fatalf("%s failed after kill %d %s", s.Work, kill, how)
	}
}

// plan is when one victim is killed. The zero value lets it end by itself.
type plan struct {
	change int // before the change of this number
	moment *Moment
	after  time.Duration
}

// turns spreads the kills over the changes and moments of a run.
type turns struct {
	changes, moments, of  int
	took                  time.Duration
	n, atChange, atMoment int
}

const clockEvery = 10 // one kill in this many is at a random time

func (u *turns) next() (p plan, moment int) {
	n := u.n
	u.n++
	switch {
	case n%clockEvery == clockEvery-1:
		return plan{after: 1 + rand.N(u.took)}, -1
	case u.moments > 0 && n%2 == 1:
		u.atMoment++
		return plan{}, (u.atMoment - 1) % u.moments
	}
	// If there are fewer kills than changes, the kills are spread evenly over the changes.
	step := max(1, u.changes/max(1, u.of))
	at := u.atChange*step + rand.N(step)
	u.atChange++
	return plan{change: 1 + at%u.changes}, -1
}

// life is the result of one run of the victim.
type life struct {
	how     string // how it was killed; empty if it ended by itself
	failed  error  // the victim's own failure
	logged  string
	changes int
	took    time.Duration
	over    func() // waits until what it started has ended
}

// live runs a victim.
func (s Scene) live(t *testing.T, p plan) life {
	t.Helper()
	if s.Prepare != nil {
		s.Prepare()
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workEnv+"="+s.Work, dirEnv+"="+s.Dir)
	var logged strings.Builder
	cmd.Stdout, cmd.Stderr = &logged, os.Stderr
	cmd.WaitDelay = time.Second // orphans keep the output open
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w}
	began := time.Now()
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	var fd int
	if err == nil {
		fd, err = strconv.Atoi(strings.TrimSpace(line))
	}
	var l *listener
	if err == nil {
		l, err = listenTo(cmd.Process.Pid, fd)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("watch the victim: %v, saying %q", err, logged.String())
	}

	var out life
	var mu sync.Mutex
	kill := func(how string) {
		mu.Lock()
		defer mu.Unlock()
		if out.how == "" && cmd.Process.Kill() == nil {
			out.how = how
		}
	}
	if p.moment != nil {
		name := p.moment.Name
		defer p.moment.Arm(func() { kill(name) })()
	}
	if p.after > 0 {
		defer time.AfterFunc(p.after, func() { kill("by the clock") }).Stop()
	}
	var n atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- l.serve(func(c change) bool {
			if n.Add(1) == int64(p.change) {
				kill(c.String())
			}
			mu.Lock()
			defer mu.Unlock()
			return out.how != ""
		})
	}()
	waited := cmd.Wait()
	took := time.Since(began)
	mu.Lock()
	defer mu.Unlock()
	if waited == nil { // it had ended when the signal came
		out.how = ""
	}
	if out.how == "" {
		out.failed = waited
	}
	out.logged, out.changes, out.took = logged.String(), int(n.Load()), took
	out.over = func() {
		t.Helper()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(orphansEnd):
			t.Fatalf("what the victim had started before it was killed %s does not end", out.how)
		}
	}
	return out
}
