package container

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestParseResolvConf(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-79")
	for _, tc := range []struct {
		name, in string
		want     resolvConf
		err      string
	}{
		{name: "empty"},
		{
			name: "the usual",
			in: "# made by hand\nnameserver 10.0.0.1\n  nameserver\t10.0.0.2  \nsearch a.example b.example\noptions " +
				"ndots:2 rotate\n",
			want: resolvConf{[]string{"10.0.0.1", "10.0.0.2"}, []string{"a.example", "b.example"},
				[]string{"ndots:2", "rotate"}},
		},
		{name: "the last search counts", in: "search a\nsearch b c", want: resolvConf{Searches: []string{"b", "c"}}},
		{name: "an empty search clears", in: "search a\nsearch", want: resolvConf{}},
		{
			name: "options accumulate, the last value wins",
			in:   "options ndots:2 rotate\noptions ndots:5 edns0",
			want: resolvConf{Options: []string{"ndots:5", "rotate", "edns0"}},
		},
		{name: "trailing dots are cut", in: "search a.example. b.", want: resolvConf{Searches: []string{"a.example", "b"}}},
		{name: "the root is no search domain", in: "search . a", want: resolvConf{Searches: []string{"a"}}},
		{
			name: "a semicolon is no comment",
			in:   "; nameserver 1.1.1.1\nnameserver 2.2.2.2",
			want: resolvConf{Servers: []string{"2.2.2.2"}},
		},
		{name: "a comment takes the whole line", in: " # nameserver 1.1.1.1\n#nameserver 3.3.3.3", want: resolvConf{}},
		{name: "no final newline", in: "nameserver 1.1.1.1", want: resolvConf{Servers: []string{"1.1.1.1"}}},
		{
			name: "carriage returns",
			in:   "nameserver 1.1.1.1\r\nsearch a\r\n",
			want: resolvConf{Servers: []string{"1.1.1.1"}, Searches: []string{"a"}},
		},
		{
			name: "a nameserver without address",
			in:   "search a\nnameserver\nnameserver 1.1.1.1",
			want: resolvConf{Servers: []string{"1.1.1.1"}, Searches: []string{"a"}},
			err:  "nameserver list is empty ",
		},
		{name: "unknown keywords are ignored", in: "sortlist 1.2.3.4\ndomain x\nlookup file bind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseResolvConf(strings.NewReader(tc.in))
			if !equalConf(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if text := ""; err != nil && err.Error() != tc.err || err == nil && tc.err != text {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

// TestReadResolvConfSizeLimit: a file that is too long is rejected, not truncated.
func TestReadResolvConfSizeLimit(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-79")
	const line = "nameserver 1.1.1.1\n"
	for length, want := range map[int]string{
		10<<20 - 1: "",
		10 << 20:   "the read limit is reached",
		11 << 20:   "the read limit is reached",
	} {
		c, err := parseResolvConf(strings.NewReader(line + strings.Repeat("#", length-len(line))))
		if want == "" && (err != nil || len(c.Servers) != 1) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d bytes: got %v, %v; want the error %q", length, c, err, want)
		}
	}
}

// TestReadResolvConfErrors: the event distinguishes a missing file from an invalid one.
func TestReadResolvConfErrors(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-79")
	dir := t.TempDir()
	long, empty := filepath.Join(dir, "long"), filepath.Join(dir, "empty")
	err := errors.Join(os.WriteFile(long, nil, 0o644), os.Truncate(long, 10<<20),
		os.WriteFile(empty, []byte("nameserver\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	const parsing = "Encountered error while parsing resolv conf file. Error: "
	for file, want := range map[string]string{
		long:                parsing + "the read limit is reached",
		empty:               parsing + "nameserver list is empty ",
		dir:                 parsing + "read " + dir + ": is a directory",
		dir + "/missing":    "open " + dir + "/missing: no such file or directory",
		"/dev/null/missing": "open /dev/null/missing: not a directory",
	} {
		b := newBench(t, func(c *Config) { c.DNS.ResolvConf = file })
		p := simplePod(nil)
		p.Spec.DNSPolicy = v1.DNSDefault
		if _, err := b.RunSandbox(t.Context(), p, 0); err == nil || pod.TextOf(err) != want {
			t.Errorf("%s: %v, want the event %q", file, err, want)
		}
	}
}

// equalConf treats empty and missing lists as equal.
func equalConf(a, b resolvConf) bool {
	norm := func(c resolvConf) [3][]string {
		return [3][]string{
			append([]string{}, c.Servers...),
			append([]string{}, c.Searches...),
			append([]string{}, c.Options...),
		}
	}
	return reflect.DeepEqual(norm(a), norm(b))
}

// FuzzParseResolvConf checks that the parsed configuration can be written as a resolv.conf and
// parses back to the same.
func FuzzParseResolvConf(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nsearch a. b .\noptions ndots:5 rotate\n# x\n")
	f.Add("nameserver\noptions ndots: ndots\nsearch\n")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseResolvConf(strings.NewReader(s))
		if err != nil && !strings.Contains(s, "nameserver") {
			t.Fatalf("%q: %v", s, err)
		}
		var b strings.Builder
		for _, n := range c.Servers {
			b.WriteString("nameserver " + n + "\n")
		}
		b.WriteString("search " + strings.Join(c.Searches, " ") + "\n")
		b.WriteString("options " + strings.Join(c.Options, " ") + "\n")
		again, err := parseResolvConf(strings.NewReader(b.String()))
		if err != nil {
			t.Fatalf("%q: %v", b.String(), err)
		}
		for i, d := range c.Searches { // "a.." loses one dot at a time
			c.Searches[i] = strings.TrimSuffix(d, ".")
		}
		if c.Searches = dropEmpty(c.Searches); !equalConf(again, c) {
			t.Errorf("%q reads %q, and written again %q", s, c, again)
		}
	})
}

func dropEmpty(list []string) []string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}
