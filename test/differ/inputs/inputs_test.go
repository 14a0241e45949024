package inputs

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"keelson/internal/config"
	"keelson/test/parts"
)

var (
	seed      = flag.Uint64("seed", 1, "seed of the inputs; 0 takes one from the clock")
	manifests = flag.Int("manifests", 2500, "number of manifests")
	configs   = flag.Int("configs", 500, "number of configurations")
	from      = flag.Int("from", 0, "number of the first input")
	all       = flag.Bool("all", false, "report every difference, not the first 50")
)

// start starts the oracle, and says which seed is used.
func start(t *testing.T) (*Oracle, uint64) {
	t.Helper()
	b, err := parts.New(testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	program, err := b.Path(t.Context(), "oracle")
	if err != nil {
		t.Fatal(err)
	}
	o, err := StartOracle(t.Context(), program, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil && t.Context().Err() == nil {
			t.Errorf("oracle: %v", err)
		}
	})
	s := *seed
	if s == 0 {
		s = uint64(time.Now().Unix())
	}
	t.Logf("seed %d (make differ-inputs SEED=%d)", s, s)
	return o, s
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

var _ io.Writer = testWriter{}

// run tries the inputs of a seed and reports what differs and has no rule.
func run(t *testing.T, seed uint64, count int, o *Oracle, try func(seed uint64, n int) (*Difference, error)) {
	ruled, unexplained := map[string]int{}, 0
	accepted := 0
	for n := *from; n < *from+count; n++ {
		before := o.Accepted
		d, err := try(seed, n)
		if err != nil {
			t.Fatalf("input %d: %v", n, err)
		}
		if d == nil && o.Accepted > before {
			accepted++
		}
		if d == nil {
			continue
		}
		if r := ruleFor(d); r != nil {
			ruled[r.Name]++
			continue
		}
		if unexplained++; unexplained <= 50 || *all {
			t.Errorf("%s", d)
		}
		if f := os.Getenv("KEELSON_DIFFER_KEEP"); f != "" {
			if err := os.WriteFile(f, []byte(d.Input), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	differ := unexplained
	for _, n := range ruled {
		differ += n
	}
	t.Logf("%d inputs of seed %d: %d accepted alike, %d refused alike, %d differ and are not explained",
		count, seed, accepted, count-differ-accepted, unexplained)
	for _, r := range rules {
		if ruled[r.Name] > 0 {
			t.Logf("  %4d ruled by %s: %s", ruled[r.Name], r.Decision, r.Name)
		}
	}
}

func TestManifests(t *testing.T) {
	o, s := start(t)
	m, err := NewManifests(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range m.bases {
		list := b.name == "list.yaml"
		if d, err := m.compare(b.text, list, true); err != nil || d != nil {
			t.Errorf("%s as it is: %v, %v", b.name, d, err)
		}
	}
	run(t, s, *manifests, o, m.Try)
}

func TestConfigurations(t *testing.T) {
	o, s := start(t)
	c, err := NewConfigs(o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range c.bases {
		if d, err := c.try(configCase{base: i}); err != nil || d != nil {
			t.Errorf("%s as it is: %v, %v", b.name, d, err)
		}
	}
	for _, g := range config.KnownGates().Sorted() {
		for _, on := range []bool{true, false} {
			arg := fmt.Sprintf("--feature-gates=%s=%v", g.Name, on)
			if d, err := c.compare([]string{arg}, []string{arg}, ""); err != nil || d != nil {
				t.Errorf("%v, %v", d, err)
			}
		}
	}
	run(t, s, *configs, o, c.Try)
}
