package provider

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"keelson/internal/runtime/image"
	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

// bench is a directory of plugins, a clock, and a service account.
type bench struct {
	dir     string
	now     time.Time
	account *v1.ServiceAccount
	*Plugins
	reg *prometheus.Registry
}

func (b *bench) Token(_ context.Context, p *v1.Pod, audiences []string, _ *int64) (string, time.Time, error) {
	return "token-of-" + p.Name + "-for-" + strings.Join(audiences, ","), time.Time{}, nil
}

func (b *bench) getAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	if b.account == nil || b.account.Namespace != namespace || b.account.Name != name {
		return nil, errors.New("not found")
	}
	return b.account, nil
}

const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// answering is a plugin that records its input and arguments, and responds.
const answering = `#!/bin/sh
cat >> "$0.in"; echo " $* $MARK" >> "$0.in"
cat "$0.out"
`

func newBench(t *testing.T, config string, plugins map[string]string) (*bench, error) {
	t.Helper()
	b := &bench{dir: t.TempDir(), now: time.Unix(1000000, 0), reg: prometheus.NewRegistry()}
	for name, script := range plugins {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	b.Plugins, err = New(Config{
		Path:        path,
		BinDir:      b.dir,
		Tokens:      b,
		Account:     b.getAccount,
		AllowTokens: true,
		Registry:    b.reg,
		Log:         slog.New(slog.DiscardHandler),
		Now:         func() time.Time { return b.now },
	})
	return b, err
}

func (b *bench) answers(t *testing.T, name, body string) {
	t.Helper()
	raw := `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",` + body + `}`
	if err := os.WriteFile(filepath.Join(b.dir, name+".out"), []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
}

// asked returns the requests that a plugin got since the last call.
func (b *bench) asked(t *testing.T, name string) []string {
	t.Helper()
	p := filepath.Join(b.dir, name+".in")
	raw, err := os.ReadFile(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

func pod(name, account string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       v1.PodSpec{ServiceAccountName: account},
	}
}

func users(creds []image.Credential) []string {
	var out []string
	for _, c := range creds {
		out = append(out, c.Auth.Username+":"+c.Auth.Password)
	}
	return out
}

const one = `- {name: p, matchImages: ["*.example.com"], defaultCacheDuration: 10m, apiVersion: credentialprovider.kubelet.k8s.io/v1, args: [get, -v], env: [{name: MARK, value: m}]}
`

func TestPlugins(t *testing.T) {
	parity.Proves(t, "PLUG-34")
	parity.ProvesPart(t, 3, "LIFE-102")
	b, err := newBench(t, head+one, map[string]string{"p": answering})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(repository string, want ...string) {
		t.Helper()
		got, err := b.Credentials(t.Context(), pod("a", ""), repository)
		if err != nil || !slices.Equal(users(got), want) {
			t.Errorf("credentials for %s = %v, %v; want %v", repository, users(got), err, want)
		}
	}
	runs := func(want int) {
		t.Helper()
		if got := b.asked(t, "p"); len(got) != want {
			t.Errorf("%d runs, want %d: %q", len(got), want, got)
		}
	}
	b.answers(t, "p",
		`"cacheKeyType":"Image","auth":{"*.example.com":{"username":"star","password":"1"},`+
			`"a.example.com/x":{"username":"path","password":"2"},"b.example.com":{"username":"other","password":"3"}}`)
	ask("a.example.com/x/y", "path:2", "star:1")
	want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1",` +
		`"image":"a.example.com/x/y"} get -v m`
	if got := b.asked(t, "p"); len(got) != 1 || got[0] != want {
		t.Errorf("the plugin got %q, want %s", got, want)
	}
	ask("other.org/x")
	ask("a.example.com/x/y", "path:2", "star:1")
	runs(0)
	ask("a.example.com/z", "star:1")
	runs(1) // the response was for one image
	b.now = b.now.Add(10 * time.Minute)
	b.answers(t, "p",
		`"cacheKeyType":"Registry","cacheDuration":"1h","auth":{"*.example.com":{"username":"r","password":"1"}}`)
	ask("a.example.com/x/y", "r:1")
	runs(1) // the default duration has passed
	b.now = b.now.Add(59 * time.Minute)
	ask("a.example.com/q", "r:1")
	runs(0) // the response is for the registry and has a duration of its own
	b.answers(t, "p", `"cacheKeyType":"Global","auth":{"*.example.com":{"username":"g","password":"1"}}`)
	ask("b.example.com/q", "g:1")
	ask("c.example.com/q", "g:1")
	runs(1)
	b.now = b.now.Add(2 * time.Hour)
	b.answers(t, "p",
		`"cacheKeyType":"Image","cacheDuration":"0s","auth":{"*.example.com":{"username":"n","password":"1"}}`)
	ask("a.example.com/x", "n:1")
	ask("a.example.com/x", "n:1")
	runs(2) // not to be cached
	b.answers(t, "p", `"cacheKeyType":"Image"`)
	ask("a.example.com/x")
	if n := len(b.plugins[0].cache); n != 1 {
		t.Errorf("%d answers kept, want the last one only", n)
	}
}

// Requests to a plugin have its configured apiVersion.
func TestPluginAPIVersions(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-102")
	for _, version := range []string{"v1alpha1", "v1beta1", "v1"} {
		group := "credentialprovider.kubelet.k8s.io/" + version
		config := head + strings.Replace(one, "credentialprovider.kubelet.k8s.io/v1", group, 1)
		b, err := newBench(t, config, map[string]string{"p": answering})
		if err != nil {
			t.Fatal(err)
		}
		answer := `{"apiVersion":"` + group + `","kind":"CredentialProviderResponse","cacheKeyType":"Image",` +
			`"auth":{"*.example.com":{"username":"u","password":"1"}}}`
		if err := os.WriteFile(filepath.Join(b.dir, "p.out"), []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := b.Credentials(t.Context(), nil, "a.example.com/x")
		if err != nil || !slices.Equal(users(got), []string{"u:1"}) {
			t.Errorf("%s: credentials %v, %v", version, users(got), err)
		}
		want := `{"kind":"CredentialProviderRequest","apiVersion":"` + group + `","image":"a.example.com/x"} get -v m`
		if in := b.asked(t, "p"); len(in) != 1 || in[0] != want {
			t.Errorf("the plugin got %q, want %s", in, want)
		}
	}
}

func TestFailingPlugins(t *testing.T) {
	const secret = "hunter2"
	for _, tc := range []struct{ name, script, want string }{
		{"a failure includes standard error", "#!/bin/sh\ncat > /dev/null; echo no metadata service >&2; exit 3",
			"run credential provider p for image a.example.com/x: exit status 3: no metadata service"},
		{"an empty response", "#!/bin/sh\nexit 0", "answer is not a CredentialProviderResponse in JSON"},
		{"an answer is not quoted", "#!/bin/sh\necho '" + secret + "'", "answer is not a CredentialProviderResponse in JSON"},
		{"another version", `#!/bin/sh
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1beta1","kind":"CredentialProviderResponse"}'`,
			`want a CredentialProviderResponse of "credentialprovider.kubelet.k8s.io/v1"`},
		{"no cache key", `#!/bin/sh
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Some"}'`,
			`answer has cacheKeyType "Some", want Image, Registry or Global`},
		{"too much", "#!/bin/sh\nhead -c 2000000 /dev/zero", "answer is larger than 1048576 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := newBench(t, head+one, map[string]string{"p": tc.script})
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Credentials(t.Context(), nil, "a.example.com/x")
			if err == nil || !strings.Contains(err.Error(), tc.want) || len(got) > 0 ||
				strings.Contains(fmt.Sprint(err), secret) {
				t.Errorf("credentials = %v, %v; want %s", got, err, tc.want)
			}
			families, err := b.reg.Gather()
			if err != nil || len(families) != 2 || families[1].GetMetric()[0].GetCounter().GetValue() != 1 {
				t.Errorf("metrics: %v, %v; want one failed run", families, err)
			}
		})
	}
}

// A plugin without its executable is named in the error. It works again when the executable is
// restored.
func TestPluginExecutableRemoved(t *testing.T) {
	b, err := newBench(t, head+one, map[string]string{"p": answering})
	if err != nil {
		t.Fatal(err)
	}
	b.answers(t, "p",
		`"cacheKeyType":"Image","cacheDuration":"0s","auth":{"*.example.com":{"username":"u","password":"1"}}`)
	file := filepath.Join(b.dir, "p")
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	got, err := b.Credentials(t.Context(), nil, "a.example.com/x")
	if !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "run credential provider p for image a.example.com/x: ") || len(got) > 0 {
		t.Errorf("without its program: %v, %v", got, err)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Credentials(t.Context(), nil, "a.example.com/x"); err != nil ||
		!slices.Equal(users(got), []string{"u:1"}) {
		t.Errorf("with its program: %v, %v", users(got), err)
	}
}

func TestPluginTimeoutKillsProcessGroup(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-102")
	b, err := newBench(t, head+one,
		map[string]string{"p": "#!/bin/sh\necho waiting >&2\n(echo $$ > \"$0.pid\"; sleep 600) & wait"})
	if err != nil {
		t.Fatal(err)
	}
	if d := b.plugins[0].timeout; d != time.Minute {
		t.Errorf("a plugin has %v, want a minute", d)
	}
	b.plugins[0].timeout = time.Millisecond
	if _, err := b.Credentials(t.Context(), nil, "a.example.com/x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a plugin out of time: %v", err)
	}
	b.plugins[0].timeout = time.Minute
	if err := os.Remove(filepath.Join(b.dir, "p.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	// Cancelled once it waits with a child process.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	group := make(chan string, 1)
	go func() {
		defer cancel()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if raw, err := os.ReadFile(filepath.Join(b.dir, "p.pid")); err == nil &&
				strings.HasSuffix(string(raw), "\n") {
				group <- strings.TrimSpace(string(raw))
				return
			}
		}
		group <- ""
	}()
	if _, err = b.plugins[0].run(ctx, request("a.example.com/x")); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "waiting") {
		t.Errorf("run = %v", err)
	}
	leader := <-group
	if leader == "" {
		t.Fatal("the plugin never waited")
	}
	// Killed processes exit a moment later.
	await.Until(t, "the plugin's process group to exit", func() (string, bool) {
		left := membersOf(t, leader)
		return fmt.Sprintf("%q", left), len(left) == 0
	})
}

// membersOf returns the processes of a group that have not exited.
func membersOf(t *testing.T, group string) (left []string) {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		stat, err := os.ReadFile(p)
		if err != nil {
			continue // it has exited meanwhile
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 2 && f[2] == group && f[0] != "Z" {
			left = append(left, string(stat))
		}
	}
	return left
}

func TestPluginWithRemainingChildProcess(t *testing.T) {
	b, err := newBench(t, head+one,
		map[string]string{"p": "#!/bin/sh\necho $$ > \"$0.pid\"; cat > /dev/null; cat \"$0.out\"; sleep 600 &\n"})
	if err != nil {
		t.Fatal(err)
	}
	b.answers(t, "p", `"cacheKeyType":"Image","auth":{"*.example.com":{"username":"u","password":"1"}}`)
	got, err := b.Credentials(t.Context(), nil, "a.example.com/x")
	raw, perr := os.ReadFile(filepath.Join(b.dir, "p.pid"))
	if perr != nil {
		t.Fatal(perr)
	}
	group, perr := strconv.Atoi(strings.TrimSpace(string(raw)))
	if perr != nil {
		t.Fatal(perr)
	}
	if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
		t.Errorf("end the child: %v", err)
	}
	if err != nil || !slices.Equal(users(got), []string{"u:1"}) {
		t.Errorf("credentials = %v, %v", users(got), err)
	}
}

func TestServiceAccounts(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-103")
	const mine = `- name: p
  matchImages: ["*.example.com"]
  defaultCacheDuration: 10m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: %s, requireServiceAccount: %v, requiredServiceAccountAnnotationKeys: [%s], optionalServiceAccountAnnotationKeys: [x/opt, x/none]}
`
	setup := func(t *testing.T, cacheType string, require bool, keys string) *bench {
		t.Helper()
		b, err := newBench(t, head+fmt.Sprintf(mine, cacheType, require, keys), map[string]string{"p": answering})
		if err != nil {
			t.Fatal(err)
		}
		b.account = &v1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   "ns",
				Name:        "sa",
				UID:         "7",
				Annotations: map[string]string{"x/req": "r", "x/opt": "o", "x/other": "-"},
			},
		}
		b.answers(t, "p", `"cacheKeyType":"Registry","auth":{"*.example.com":{"username":"u","password":"1"}}`)
		return b
	}
	t.Run("the plugin gets a token and the configured annotations", func(t *testing.T) {
		b := setup(t, "ServiceAccount", true, "x/req")
		got, err := b.Credentials(t.Context(), pod("a", "sa"), "a.example.com/x")
		if err != nil || len(got) != 1 || got[0].Account == nil || got[0].Account.UID != "7" ||
			got[0].Account.Name != "sa" {
			t.Fatalf("credentials = %+v, %v", got, err)
		}
		if in := b.asked(t, "p")[0]; !strings.Contains(in,
			`"serviceAccountToken":"token-of-a-for-reg","serviceAccountAnnotations":{"x/opt":"o","x/req":"r"}`) {
			t.Errorf("the plugin got %s", in)
		}
	})
	for cacheType, runs := range map[string]int{"ServiceAccount": 1, "Token": 2} {
		t.Run("cached per "+cacheType, func(t *testing.T) {
			b := setup(t, cacheType, true, "x/req")
			for _, name := range []string{"a", "b", "a"} {
				if _, err := b.Credentials(t.Context(), pod(name, "sa"), "a.example.com/x"); err != nil {
					t.Error(err)
				}
			}
			if got := b.asked(t, "p"); len(got) != runs {
				t.Errorf("%d runs for two pods of one account, want %d", len(got), runs)
			}
		})
	}
	t.Run("a token returned as password is cached per token only", func(t *testing.T) {
		for cacheType, want := range map[string]string{"ServiceAccount": "", "Token": "u:token-of-a-for-reg"} {
			b := setup(t, cacheType, true, "x/req")
			b.answers(t, "p",
				`"cacheKeyType":"Registry","auth":{"*.example.com":{"username":"u","password":"token-of-a-for-reg"}}`)
			for range 2 { // errors are not cached
				got, err := b.Credentials(t.Context(), pod("a", "sa"), "a.example.com/x")
				if text := strings.Join(users(got), " "); text != want || (err != nil) != (want == "") {
					t.Errorf("%s: credentials %q, %v; want %q", cacheType, text, err, want)
				}
				const says = "credential provider plugin returned the service account token as the password " +
					"which is not allowed when service account cache type is not set to 'Token'"
				if want == "" &&
					(err == nil || !strings.HasSuffix(err.Error(), says) ||
						strings.Contains(err.Error(), "token-of-a")) {
					t.Errorf("%v", err)
				}
			}
		}
	})
	t.Run("without the annotation that is required", func(t *testing.T) {
		b := setup(t, "Token", true, "x/req")
		delete(b.account.Annotations, "x/req")
		if got, err := b.Credentials(t.Context(), pod("a", "sa"), "a.example.com/x"); err == nil || len(got) > 0 ||
			b.asked(t, "p") != nil {
			t.Errorf("credentials = %v, %v; want an error and no run", got, err)
		}
	})
	t.Run("without the account that is required", func(t *testing.T) {
		b := setup(t, "Token", true, "")
		if got, err := b.Credentials(t.Context(), pod("a", ""), "a.example.com/x"); err != nil || len(got) > 0 ||
			b.asked(t, "p") != nil {
			t.Errorf("credentials = %v, %v; want none and no run", got, err)
		}
	})
	t.Run("without an account where none is required", func(t *testing.T) {
		b := setup(t, "Token", false, "")
		got, err := b.Credentials(t.Context(), pod("a", ""), "a.example.com/x")
		if err != nil || len(got) != 1 || got[0].Account != nil || strings.Contains(b.asked(t, "p")[0], "token") {
			t.Errorf("credentials = %+v, %v; want the node's", got, err)
		}
	})
}

func TestConfiguration(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-103")
	const v = "apiVersion: credentialprovider.kubelet.k8s.io/v1"
	attrs := func(s string) string {
		return head + "- {name: p, matchImages: [a], defaultCacheDuration: 1m, " + v + ", tokenAttributes: {" + s + "}}"
	}
	for _, tc := range []struct{ name, config, want string }{
		{
			"the older versions",
			strings.Replace(head, "/v1", "/v1alpha1",
				1) +
				"- {name: p, matchImages: [a], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1beta1}",
			"",
		},
		{
			"another kind",
			strings.Replace(head, "CredentialProviderConfig", "KubeletConfiguration", 1) + one,
			"is not a CredentialProviderConfig",
		},
		{"an unknown field", head + "- {name: p, colour: red}", `unknown field "colour"`},
		{"no providers", head, "providers: at least one is required"},
		{"a name that is a path", head + "- {name: ../p}", "name: must be the name of a file, without spaces"},
		{"nothing to match", head + "- {name: p}", "matchImages: at least one is required"},
		{"no duration", head + "- {name: p, matchImages: [a]}", "defaultCacheDuration: is required"},
		{
			"a negative duration",
			head + "- {name: p, matchImages: [a], defaultCacheDuration: -1s}",
			"defaultCacheDuration: -1s must not be negative",
		},
		{
			"no version",
			head + "- {name: p, matchImages: [a], defaultCacheDuration: 1s}",
			`apiVersion: "" must be v1, v1beta1, v1alpha1 of credentialprovider.kubelet.k8s.io`,
		},
		{"a name twice", head + one + one, `provider "p": named twice`},
		{
			"no such program",
			head + strings.Replace(one, "name: p", "name: q", 1),
			"find credential provider q: no such file in",
		},
		{"no audience", attrs("cacheType: Token"), "tokenAttributes.serviceAccountTokenAudience: is required"},
		{
			"requireServiceAccount is missing",
			attrs("serviceAccountTokenAudience: a, cacheType: Token"),
			"tokenAttributes.requireServiceAccount: is required",
		},
		{
			"no cache type",
			attrs("serviceAccountTokenAudience: a, requireServiceAccount: true"),
			`tokenAttributes.cacheType: "" must be Token or ServiceAccount`,
		},
		{
			"annotations of an account that need not be",
			attrs(
				"serviceAccountTokenAudience: a, requireServiceAccount: false, cacheType: Token, " +
					"requiredServiceAccountAnnotationKeys: [a]"),
			"needs requireServiceAccount",
		},
		{
			"tokens for an older plugin",
			strings.Replace(attrs("serviceAccountTokenAudience: a"), "kubelet.k8s.io/v1,", "kubelet.k8s.io/v1beta1,",
				1),
			"tokenAttributes: needs apiVersion credentialprovider.kubelet.k8s.io/v1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := newBench(t, tc.config, map[string]string{"p": answering})
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("New = %v, want %s", err, tc.want)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		b, err := newBench(t, head+one, map[string]string{"p": answering, "q": answering})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for name, content := range map[string]string{
			"2.yaml":     head + one,
			"1.yml":      head + strings.Replace(one, "name: p", "name: q", 1),
			"readme.txt": "no",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cfg := b.cfg
		cfg.Path, cfg.Registry = dir, nil
		ps, err := New(cfg)
		if err != nil || len(ps.plugins) != 2 || ps.plugins[0].cfg.Name != "q" {
			t.Errorf("New = %+v, %v; want q before p", ps, err)
		}
	})
	t.Run("tokens while the gate is off", func(t *testing.T) {
		if _, err := parse([]byte(attrs("serviceAccountTokenAudience: a")), false); err == nil ||
			!strings.Contains(err.Error(), "KubeletServiceAccountTokenForCredentialProviders") {
			t.Errorf("parse = %v", err)
		}
	})
}

func request(repository string) credentialv1.CredentialProviderRequest {
	return credentialv1.CredentialProviderRequest{Image: repository}
}
