package fakecri

import (
	"fmt"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestShell runs scripts and writes down what they do.
func TestShell(t *testing.T) {
	env := map[string]string{"A": "one", "B_2": "two words"}
	sh := func(s string) []string { return []string{"/bin/sh", "-c", s} }
	for _, c := range []struct {
		name string
		argv []string
		want string
	}{
		{"no command is a server", nil, "forever"},
		{"an unknown command is a server", []string{"/agnhost", "pause"}, "forever"},
		{"one command", []string{"echo", "a", "b"}, "out a b\n | exit 0"},
		{"an argument is not a script", []string{"echo", "a; exit 3"}, "out a; exit 3\n | exit 0"},
		{"true and false", sh("false && echo no; true && echo yes"), "out yes\n | exit 0"},
		{"the last status counts", sh("true; false"), "exit 1"},
		{"exit without a code", sh("false; exit"), "exit 1"},
		{"quotes and variables", sh(`echo '$A' "$A ${B_2}" $A\ x`), "out $A one two words one x\n | exit 0"},
		{"both streams", sh("echo a; echo b >&2; echo c 1>&2"), "out a\n | err b\n | err c\n | exit 0"},
		{"sleeping", sh("sleep 0.5; sleep 2s; exit 2"), "wait 500ms | wait 2s | exit 2"},
		{"sleeping for ever", sh("sleep infinity; exit 2"), "forever"},
		{"a trap that exits", sh("trap 'exit 7' TERM; while true; do sleep 1; done"), "forever term=7"},
		{"a trap that ignores", sh("trap '' TERM; sleep inf"), "forever term=ignored"},
		{"a trap without a code", sh("trap exit TERM; while true; do sleep 1; done"), "forever term=0"},
		{"files", sh("echo x > /tmp/f; echo y >> /tmp/f; cat /tmp/f; rm /tmp/f; cat /tmp/f || echo none"), "out x\ny\n | err cat: can't open '/tmp/f': No such file or directory\n | out none\n | exit 0"},
		{"remove by force", sh("rm -f /tmp/none && echo gone"), "out gone\n | exit 0"},
		{"liveness of the textbook", sh("touch /tmp/healthy; sleep 30; rm -f /tmp/healthy; sleep 600"), "wait 30s | wait 10m0s | exit 0"},
		{"out of memory", sh("sleep 1; oom"), "wait 1s | oom"},
		{"open quotes end with the script", sh(`echo "a`), "out a\n | exit 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			ctr := &container{config: &cri.ContainerConfig{}, files: map[string][]byte{}}
			vm := &machine{program: parse(c.argv, env), main: true, fs: ctr}
			vm.out = func(stderr bool, text string) {
				stream := "out "
				if stderr {
					stream = "err "
				}
				got = append(got, stream+text)
			}
			for {
				v := vm.run()
				if v.wait > 0 {
					got = append(got, "wait "+v.wait.String())
					continue
				}
				switch {
				case v.forever:
					got = append(got, "forever"+term(vm.trap))
				case v.oom:
					got = append(got, "oom")
				case v.done:
					got = append(got, fmt.Sprint("exit ", v.code))
				}
				break
			}
			if s := strings.Join(got, " | "); s != c.want {
				t.Errorf("%q\nwant %q", s, c.want)
			}
		})
	}
}

func term(tr trap) string {
	switch {
	case tr.ignore:
		return " term=ignored"
	case tr.set:
		return fmt.Sprint(" term=", tr.code)
	}
	return ""
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0":     0,
		"1":     time.Second,
		"0.25":  250 * time.Millisecond,
		"200ms": 200 * time.Millisecond,
		"2h":    2 * time.Hour,
	} {
		if got, ok := duration(in); !ok || got != want {
			t.Errorf("%q: %v, %v", in, got, ok)
		}
	}
	for _, in := range []string{"infinity", "inf", "", "-1", "x"} {
		if _, ok := duration(in); ok {
			t.Errorf("%q is accepted", in)
		}
	}
}

// FuzzParse: no command line makes the runtime panic or run for ever.
func FuzzParse(f *testing.F) {
	f.Add("echo 'a\"; $x ${ > >>f && trap exit TERM")
	f.Fuzz(func(t *testing.T, script string) {
		vm := &machine{program: parse([]string{"sh", "-c", script}, nil), main: true,
			fs: &container{config: &cri.ContainerConfig{}, files: map[string][]byte{}}, out: func(bool, string) {}}
		for range len(vm.steps) + 1 {
			if v := vm.run(); v.done || v.forever {
				return
			}
		}
		t.Errorf("%q does not end", script)
	})
}
