package server_test

import (
	"compress/gzip"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keelson/internal/serve/server"
	"keelson/test/kit/parity"
)

// journal puts a stand-in for journalctl in PATH. Its journal has entries of the services kubelet and crio, and it
// prints its arguments.
func journal(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	const program = `#!/bin/sh
if test "$*" = "--field _SYSTEMD_UNIT"; then
	printf 'crio.service\nkubelet.service\nssh.socket\n'
	exit 0
fi
for a in "$@"; do
	case "$a" in
	--grep=nothing) echo "-- No entries --"; exit 0 ;;
	--boot=-99) echo "Data from the specified boot is not available" >&2; exit 1 ;;
	esac
done
echo "TZ=$TZ"
printf '<%s>\n' "$@"
`
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The messages are those that were observed with upstream's kubelet v1.36.3.
func TestNodeLogQuery(t *testing.T) {
	parity.Differs(t, "SRV-27", "0010")
	journal(t)
	var dir string
	r := newRig(t, func(p *parts) { dir, p.server.SystemLogQuery = p.server.SystemLogDir, true })
	outside := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(dir, "plain"):             "plain\n",
		filepath.Join(dir, "dotted.log"):        "dotted\n",
		filepath.Join(dir, "nested/nested.log"): "nested\n",
		filepath.Join(outside, "secret"):        "secret\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link.log": filepath.Join(outside, "secret"), "linkdir": outside} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const options = "\noptions present and query resolved to log files for [plain]\ntry without specifying options\n"
	const common = "TZ=UTC\n<--utc>\n<--no-pager>\n<--output=short-precise>\n"
	const kubelet = common + "<--unit=kubelet>\n"
	for query, want := range map[string]answer{
		"query=":               {code: 400, text: `query: Invalid value: [""]: may not be empty` + "\n"},
		"query=nosuch":         {code: 200, text: "\nlog not found for nosuch\n"},
		"query=-x":             {code: 200, text: "\nlog not found for -x\n"},
		"query=aZ_0.9:b@c-d":   {code: 200, text: "\nlog not found for aZ_0.9:b@c-d\n"},
		"query=kubelet":        {code: 200, text: kubelet},
		"query=%20":            {code: 400, text: `query: Invalid value: [" "]: may not be empty` + "\n"},
		"query=&query=kubelet": {code: 200, text: kubelet},
		"query=let":            {code: 200, text: "\nlog not found for let\n"},
		"query=ssh.socket":     {code: 200, text: common + "<--unit=ssh.socket>\n"},
		// All units at once, in the order of their lines; files follow.
		"query=kubelet&query=plain&query=crio": {code: 200, text: kubelet + "<--unit=crio>\nplain\n"},
		"query=kubelet&query=plain&tailLines=3": {
			code: 200,
			text: common + "<--lines=3>\n<--unit=kubelet>\n" + options,
		},
		// A service in the journal without matching entries is not looked up as a file.
		"query=kubelet&pattern=nothing": {code: 200, text: "-- No entries --\n"},
		"query=kubelet&boot=-99":        {code: 200, text: "Data from the specified boot is not available\n"},
		"query=plain":                   {code: 200, text: "plain\n"},
		"query=dotted":                  {code: 200, text: "dotted\n"},
		"query=nested&query=plain":      {code: 200, text: "nested\nplain\n"},
		"query=nested/nested.log":       {code: 200, text: "nested\n"},
		"query=nested/../plain":         {code: 200, text: "plain\n"},
		"query=plain&tailLines=3":       {code: 200, text: options},
		"query=plain&boot=-1":           {code: 200, text: options},
		"query=%3Bls": {
			code: 406,
			text: `query: Invalid value: ";ls": input contains unsupported characters` + "\n",
		},
		"query=$(id)": {
			code: 406,
			text: `query: Invalid value: "$(id)": input contains unsupported characters` + "\n",
		},
		"query=a%20--root%3D": {
			code: 406,
			text: `query: Invalid value: "a --root=": input contains unsupported characters` + "\n",
		},
		"query=a%0A": {
			code: 406,
			text: `query: Invalid value: "a\n": input contains unsupported characters` + "\n",
		},
		"query=a/b/c": {
			code: 406,
			text: `query: Invalid value: ["a/b/c"]: statat a/b/c: no such file or directory` + "\n",
		},
		"query=/etc/passwd": {
			code: 406,
			text: `query: Invalid value: ["/etc/passwd"]: statat /etc/passwd: path escapes from parent` + "\n",
		},
		"query=../etc/passwd": {
			code: 406,
			text: `query: Invalid value: ["../etc/passwd"]: statat ../etc/passwd: path escapes from parent` + "\n",
		},
		`query=..\etc\passwd`: {
			code: 406,
			text: `query: Invalid value: ["..\\etc\\passwd"]: statat ../etc/passwd: path escapes from parent` + "\n",
		},
		"query=linkdir/secret": {
			code: 406,
			text: `query: Invalid value: ["linkdir/secret"]: statat linkdir/secret: path escapes from parent` + "\n",
		},
		"query=link": {code: 200, text: "\nlog not found for link\n"},
		"query=a&query=b&query=c&query=d&query=e": {code: 406, text: "query: Too many: 5: must have at most 4 items\n"},
		"query=a&query=b/c": {
			code: 406,
			text: `query: Invalid value: "[b/c], [a]": cannot specify a file and service` + "\n",
		},
		// Errors of services are reported before errors of the query.
		"query=%3Bls&query=b/c": {
			code: 406,
			text: `[query: Invalid value: ";ls": input contains unsupported characters, ` +
				`query: Invalid value: "[b/c], [;ls]": cannot specify a file and service]` + "\n",
		},
		"query=a&query=b&query=c&query=d&query=$": {
			code: 406,
			text: `[query: Invalid value: "$": input contains unsupported characters, query: Too many: 5: must have at most ` +
				`4 items]` + "\n",
		},
		"query=kubelet&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00.5%2B01:00": {
			code: 406,
			text: "untilTime: Invalid value: \"2026-01-01T00:00:00.5+01:00\": must be after `sinceTime`\n",
		},
		"query=a/b&query=c/d": {
			code: 406,
			text: `query: Invalid value: ["a/b","c/d"]: cannot specify more than one file` + "\n",
		},
		"query=kubelet&untilTime=tomorrow": {
			code: 400,
			text: `untilTime: Invalid value: "tomorrow": invalid time format` + "\n",
		},
		"query=kubelet&boot=x": {
			code: 400,
			text: `boot: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax` + "\n",
		},
		"query=nested/nested.log&tailLines=3": {
			code: 406,
			text: `query: Invalid value: ["nested/nested.log"]: cannot specify file with options` + "\n",
		},
		"query=kubelet&tailLines=-1": {
			code: 406,
			text: "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive\n",
		},
		"query=kubelet&tailLines=100000": {
			code: 200,
			text: common + "<--lines=100000>\n<--unit=kubelet>\n",
		},
		"query=kubelet&tailLines=100001": {
			code: 406,
			text: "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive\n",
		},
		"query=kubelet&tailLines=x": {
			code: 400,
			text: `tailLines: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax` + "\n",
		},
		"query=kubelet&sinceTime=yesterday": {
			code: 400,
			text: `sinceTime: Invalid value: "yesterday": invalid time format` + "\n",
		},
		"query=kubelet&boot=1": {code: 406, text: "boot: Invalid value: 1: must be less than 1\n"},
		"query=kubelet&pattern=(": {
			code: 406,
			text: "pattern: Invalid value: \"(\": error parsing regexp: missing closing ): `(`\n",
		},
		"query=kubelet&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": {
			code: 406,
			text: "untilTime: Invalid value: \"2026-01-01T00:00:00Z\": must be after `sinceTime`\n",
		},
		"tailLines=3": {code: 406, text: "query: Required value: cannot be empty with options\n"},
		"query=kubelet&sinceTime=2026-01-01T01:02:03%2B01:00&untilTime=2026-01-02T00:00:" +
			"00Z&tailLines=5&boot=-1&pattern=--file%3D/etc/shadow": {
			code: 200,
			text: common +
				"<--since=2026-01-01 00:02:03>\n<--until=2026-01-02 00:00:00>\n<--lines=5>\n<--unit=kubelet>\n" +
				"<--grep=--file=/etc/shadow>\n<--boot=-1>\n",
		},
		"query=kubelet&sinceTime=2026-01-01T00:00:00Z&untilTime=2026-01-01T00:00:00Z": {
			code: 200,
			text: common + "<--since=2026-01-01 00:00:00>\n<--until=2026-01-01 00:00:00>\n<--unit=kubelet>\n",
		},
		"query=" + strings.Repeat("a", 257): {
			code: 406,
			text: `query: Invalid value: "` + strings.Repeat("a", 257) + `": length must be less than 256` + "\n",
		},
	} {
		got := r.ask(
			r.client(),
			"GET",
			"https://"+r.addr[server.Secure]+"/logs/?"+query,
			"Authorization",
			"Bearer token-may-log",
			"Accept-Encoding",
			"identity",
		)
		if got.code != want.code || got.text != want.text {
			t.Errorf("%s: %d %q, want %d %q", query, got.code, got.text, want.code, want.text)
		}
	}
	if services, _ := server.JournalArgs(url.Values{"query": {strings.Repeat("a", 256)}}); len(services) != 1 {
		t.Errorf("a name of 256 letters is refused: %q", services)
	}
	if got := r.as("may-log", "GET", "/logs/plain?tailLines=1"); got.code != 406 ||
		got.text != "path not allowed in query mode\n" {
		t.Errorf("a path with options: %d %q", got.code, got.text)
	}
	if got := r.as("may-log", "GET", "/logs/?foo=bar"); got.code != 200 || !strings.Contains(got.text, "dotted.log") {
		t.Errorf("other parameters: %d %q", got.code, got.text)
	}
	if got := r.as("may-metrics", "GET", "/logs/?query=kubelet"); got.code != 403 {
		t.Errorf("without the right: %d", got.code)
	}
	packed := r.ask(
		r.client(),
		"GET",
		"https://"+r.addr[server.Secure]+"/logs/?query=plain",
		"Authorization",
		"Bearer token-may-log",
		"Accept-Encoding",
		"gzip",
	)
	z, err := gzip.NewReader(strings.NewReader(packed.text))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != "plain\n" ||
		packed.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("packed: %q, %v", text, err)
	}
}

// TestNodeLogQueryTimeout: a journalctl that does not exit is killed after 30 seconds, and its output until then is the
// response.
func TestNodeLogQueryTimeout(t *testing.T) {
	parity.Differs(t, "SRV-27", "0010")
	dir := t.TempDir()
	const endless = "#!/bin/sh\ntest \"$1\" = --field && echo kubelet.service && exit\necho begun\nexec sleep 3600\n"
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(endless), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r := newRig(t, func(p *parts) { p.server.SystemLogQuery = true })
	began := time.Now()
	got := r.as("may-log", "GET", "/logs/?query=kubelet")
	if took := time.Since(began); took < 29*time.Second || took > 50*time.Second {
		t.Errorf("it took %v, want 30 s", took)
	}
	if got.code != 200 || !strings.HasPrefix(got.text, "begun\n") {
		t.Errorf("%d %q", got.code, got.text)
	}
}

// If log queries are disabled, a request with a query returns the directory listing.
func TestNodeLogQueryDisabled(t *testing.T) {
	journal(t)
	r := newRig(t)
	if got := r.as("may-log", "GET", "/logs/?query=kubelet"); got.code != 200 || strings.Contains(got.text, "--unit") {
		t.Errorf("%d %q", got.code, got.text)
	}
}

// FuzzNodeLogQuery looks for a query that adds other arguments of journalctl than its own options.
func FuzzNodeLogQuery(f *testing.F) {
	for _, q := range []string{
		"query=kubelet", "query=a&query=b&boot=0", "query=-D/&pattern=x", "query=a/b",
		"tailLines=1&sinceTime=2026-01-01T00:00:00Z", "query=%00", "query=--file=/etc/shadow",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		services, args := server.JournalArgs(q)
		known := []string{
			"--utc", "--no-pager", "--output=short-precise", "--since=", "--until=", "--lines=", "--boot=", "--grep=",
		}
		for _, s := range services {
			known = append(known, "--unit="+s)
		}
		for _, a := range args {
			ok := false
			for _, k := range known {
				ok = ok || a == k || strings.HasSuffix(k, "=") && strings.HasPrefix(a, k)
			}
			if !ok || strings.ContainsAny(strings.Join(services, ""), " \n\x00/;$|&<>()`'\"\\") {
				t.Errorf("%q: services %q ask %q", raw, services, args)
			}
		}
	})
}
