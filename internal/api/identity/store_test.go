package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"keelson/internal/host/checkpoint"
	"keelson/test/kit/parity"
)

// newestFirst lists the issued certificates.
func newestFirst(s *Store) ([]string, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	var out []string
	for _, e := range entries {
		if regexp.MustCompile(`-\d{4}(-\d\d){5}\.pem$`).MatchString(e.Name()) {
			out = append(out, e.Name())
		}
	}
	slices.Reverse(out)
	return out, err
}

func TestStoreLayout(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-129")
	a := newAuthority(t, time.Hour)
	s := newStore(t, ClientPair)
	s.cfg.Now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("far", 3600)) }
	if _, err := s.Current(); !errors.Is(err, ErrNone) {
		t.Errorf("an empty store: %v", err)
	}
	a.issue(s, ClientTemplate("n1"))
	current := filepath.Join(s.cfg.Dir, "kubelet-client-current.pem")
	to, err := os.Readlink(current)
	if want := filepath.Join(s.cfg.Dir, "kubelet-client-2026-02-03-03-05-06.pem"); err != nil || to != want ||
		s.Path() != current {
		t.Errorf("%s leads to %s (%v), want %s", s.Path(), to, err, want)
	}
	if i, err := os.Stat(to); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
	text, err := os.ReadFile(current)
	if err != nil || !bytes.Contains(text, []byte("BEGIN CERTIFICATE")) ||
		!bytes.Contains(text, []byte("BEGIN EC PRIVATE KEY")) {
		t.Errorf("%s, %v", text, err)
	}
	// A rotation changes the link, and the previous file is kept.
	s.cfg.Now = time.Now
	a.issue(s, ClientTemplate("n1"))
	names, err := newestFirst(s)
	if to, _ = os.Readlink(current); err != nil || len(names) != 2 || filepath.Base(to) != names[0] {
		t.Errorf("link to %s among %v, %v", to, names, err)
	}
	if _, err := s.Update([]byte("-----BEGIN"), nil); err == nil {
		t.Error("nonsense is stored")
	}
	if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:n1" {
		t.Errorf("after nonsense: %v", err)
	}
}

// Files are named by the second. A second update within the same second must not overwrite the first file, which may
// still be set aside by its name.
func TestUpdateTwiceWithinASecond(t *testing.T) {
	a := newAuthority(t, time.Hour)
	s := newStore(t, ClientPair)
	s.cfg.Now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 59, 0, time.UTC) }
	a.issue(s, ClientTemplate("n1"))
	first := s.currentFile()
	a.issue(s, ClientTemplate("n2"))
	second := s.currentFile()
	if filepath.Base(second) != "kubelet-client-2026-02-03-04-06-00.pem" {
		t.Errorf("the second of them is %s", second)
	}
	if err := checkpoint.PutAside(first, errors.New("unknown certificate")); err == nil || exists(first) {
		t.Fatalf("put aside: %v", err)
	}
	if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:n2" {
		t.Errorf("in force: %v", err)
	}
	if newest, err := s.newest(); err != nil || newest != second {
		t.Errorf("the newest is %s (%v), want %s", newest, err, second)
	}
}

func TestStoreConfiguredFiles(t *testing.T) {
	a := newAuthority(t, time.Hour)
	dir := t.TempDir()
	cert, key := a.pair(ClientTemplate("given"))
	for file, text := range map[string][]byte{"given.crt": cert, "given.key": key} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewStore(StoreConfig{
		Dir:      dir,
		Pair:     ServerPair,
		CertFile: filepath.Join(dir, "given.crt"),
		KeyFile:  filepath.Join(dir, "given.key"),
		Log:      logTo(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:given" {
		t.Errorf("%v, %v", c, err)
	}
	a.issue(s, ClientTemplate("issued"))
	if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:issued" {
		t.Errorf("%v, %v", c, err)
	}
}

// TestStoreRepair: if the current file is damaged, the store opens, sets the file aside, and uses the newest readable
// one.
func TestStoreRepair(t *testing.T) {
	a := newAuthority(t, time.Hour)
	for name, damage := range map[string]func(t *testing.T, file string){
		"cut to nothing": func(t *testing.T, file string) { must(t, os.Truncate(file, 0)) },
		"cut in half": func(t *testing.T, file string) {
			i, err := os.Stat(file)
			must(t, err)
			must(t, os.Truncate(file, i.Size()/2))
		},
		"one bit of the certificate flipped": func(t *testing.T, file string) { flip(t, file, 120) },
		"one bit of the key flipped": func(t *testing.T, file string) {
			text, err := os.ReadFile(file)
			must(t, err)
			flip(t, file, bytes.Index(text, []byte("EC PRIVATE"))+60)
		},
		"something else": func(t *testing.T, file string) { must(t, os.WriteFile(file, []byte("{}"), 0o600)) },
		"the key of another": func(t *testing.T, file string) {
			cert, _ := a.pair(ClientTemplate("n1"))
			_, key := a.pair(ClientTemplate("n1"))
			must(t, os.WriteFile(file, append(cert, key...), 0o600))
		},
	} {
		for _, older := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				s := newStore(t, ClientPair)
				if older {
					s.cfg.Now = func() time.Time { return time.Now().Add(-time.Hour) }
					a.issue(s, ClientTemplate("older"))
					s.cfg.Now = time.Now
				}
				a.issue(s, ClientTemplate("n1"))
				file, err := filepath.EvalSymlinks(s.Path())
				must(t, err)
				damage(t, file)
				var logged bytes.Buffer
				var reported []string
				s, err = NewStore(StoreConfig{
					Dir:       s.cfg.Dir,
					Pair:      ClientPair,
					Log:       slog.New(slog.NewTextHandler(&logged, nil)),
					OnCorrupt: func(err error) { reported = append(reported, err.Error()) },
				})
				must(t, err)
				if _, err := os.Stat(file + ".bad"); err != nil {
					t.Error(err)
				}
				c, err := s.Current()
				if older && (err != nil || c.Leaf.Subject.CommonName != "system:node:older") {
					t.Errorf("the one before: %v", err)
				}
				if !older && !errors.Is(err, ErrNone) {
					t.Errorf("nothing is left: %v", err)
				}
				if strings.Count(logged.String(), "level=") != 1 || !strings.Contains(logged.String(), file+".bad") {
					t.Errorf("logged:\n%s", &logged)
				}
				if len(reported) != 1 || !strings.HasPrefix(reported[0], "use "+file+": ") ||
					!strings.HasSuffix(reported[0], "it is kept as "+file+".bad") {
					t.Errorf("reported: %q", reported)
				}
				a.issue(s, ClientTemplate("n2"))
				if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:n2" {
					t.Errorf("after that: %v", err)
				}
			})
		}
	}
	t.Run("the link leads nowhere", func(t *testing.T) {
		s := newStore(t, ClientPair)
		must(t, os.Symlink(filepath.Join(s.cfg.Dir, "gone.pem"), s.Path()))
		_, err := NewStore(s.cfg)
		must(t, err)
		a.issue(s, ClientTemplate("n1"))
	})
	t.Run("an update was cut short", func(t *testing.T) {
		s := newStore(t, ClientPair)
		a.issue(s, ClientTemplate("n1"))
		must(t, os.Rename(s.Path(), s.path("updated")))
		s, err := NewStore(s.cfg)
		must(t, err)
		if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:n1" {
			t.Error(err)
		}
	})
	t.Run("a file in place of the link", func(t *testing.T) {
		s := newStore(t, ClientPair)
		cert, key := a.pair(ClientTemplate("copied"))
		must(t, os.WriteFile(s.Path(), append(cert, key...), 0o600))
		s, err := NewStore(s.cfg)
		must(t, err)
		if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:copied" {
			t.Error(err)
		}
		a.issue(s, ClientTemplate("n1"))
		if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:n1" {
			t.Error(err)
		}
		if _, err := os.Stat(s.Path() + ".old"); err != nil {
			t.Error(err)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, file string, at int) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	text[at] ^= 4
	must(t, os.WriteFile(file, text, 0o600))
}

func TestBootstrap(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-128")
	parity.ProvesPart(t, 3, "CFG-129")
	parity.ProvesPart(t, 2, "CFG-135")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, time.Hour)
		s, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		must(t, err)
		cfg := BootstrapConfig{Store: s, Requests: a.requests(), Node: "n1", Timeout: BootstrapTimeout, Log: logTo(t)}
		temporary := filepath.Join(dir, "kubelet-client.key.tmp")

		// An agent that exits while it waits leaves its key, and the next one finds its request.
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Bootstrap(ctx, cfg) }()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil {
			t.Error("no certificate, and no error")
		}
		if i, err := os.Stat(temporary); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("temporary key: %v, %v", i, err)
		}
		first := a.pending()
		if r := parseRequest(t, first); !strings.HasPrefix(first.Name, "node-csr-") ||
			first.Spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" ||
			r.Subject.String() != "CN=system:node:n1,O=system:nodes" ||
			fmt.Sprint(first.Spec.Usages) != "[digital signature client auth]" {
			t.Errorf("request %s: %s %v %s", first.Name, first.Spec.SignerName, first.Spec.Usages, r.Subject)
		} else if key, ok := r.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
			t.Errorf("a key of type %T", r.PublicKey)
		}
		// The answer is waited for during one hour.
		begin := time.Now()
		if err := Bootstrap(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), first.Name) ||
			!strings.Contains(err.Error(), "timed out after 1h0m0s") || time.Since(begin) != time.Hour {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if a.pending().Name != first.Name {
			t.Error("the request of the first try is not used")
		}
		go func() { done <- Bootstrap(t.Context(), cfg) }()
		synctest.Wait()
		a.answer(first, false)
		must(t, <-done)
		if c, err := s.Current(); err != nil || c.Leaf.Subject.CommonName != "system:node:n1" {
			t.Errorf("stored: %v", err)
		}
		if exists(temporary) {
			t.Error("the temporary key is left")
		}
	})
}

// TestRequestNameMatchesUpstream: the name is the same as upstream's, so that either agent continues with a request of
// the other.
func TestRequestNameMatchesUpstream(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-128")
	file := filepath.Join(t.TempDir(), "kubelet-client.key.tmp")
	must(t, os.WriteFile(file, []byte(`-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIIYV7Eln0lo4Fj8kUUCZMzixAjkDVnAXyJ+B4JbPbkNpoAoGCCqGSM49
AwEHoUQDQgAE+T1cvXsTRJyHSG1cAebWy3GF9R7RdptTkbInMK9/RwjJxR4uXI0Y
cvQDZTwlHRc9IJrlEisZVKCZ88MnmqLfmw==
-----END EC PRIVATE KEY-----
`), 0o600))
	key, _, err := loadOrMakeKey(file, logTo(t))
	must(t, err)
	name, err := requestName(key, ClientTemplate("n1"), "kubernetes.io/kube-apiserver-client-kubelet")
	if want := "node-csr-waDywwy7_2rRa9YgLVuPrMnErcdMWvEVqjCzNqOVeZw"; err != nil || name != want {
		t.Errorf("request %s, %v, want %s", name, err, want)
	}
}

func TestBootstrapRejected(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t, time.Hour)
		s, err := NewStore(StoreConfig{Dir: dir, Pair: ClientPair, Log: logTo(t)})
		must(t, err)
		// An unreadable key is replaced.
		must(t, os.WriteFile(filepath.Join(dir, TemporaryKey), []byte("?"), 0o600))
		cfg := BootstrapConfig{Store: s, Requests: a.requests(), Node: "n1", Timeout: BootstrapTimeout, Log: logTo(t)}
		done := make(chan error, 1)
		go func() { done <- Bootstrap(t.Context(), cfg) }()
		synctest.Wait()
		a.answer(a.pending(), true)
		if err := <-done; err == nil || !strings.Contains(err.Error(), "reason: NoThanks, message: not this one") {
			t.Errorf("%v", err)
		}
		// The next attempt makes a new request.
		go func() { done <- Bootstrap(t.Context(), cfg) }()
		synctest.Wait()
		a.answer(a.pending(), false)
		must(t, <-done)
	})
}

// kubeconfig writes a kubeconfig file with a certificate, or a token if there is none.
func kubeconfig(t *testing.T, file string, cert, key []byte) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{
		Server:               "https://api:6443",
		CertificateAuthority: "ca.crt",
		TLSServerName:        "api.local",
	}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	if cert == nil {
		c.AuthInfos["u"].Token = "07401b.f395accd246ae52d"
	}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	must(t, clientcmd.WriteToFile(*c, file))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(file), "ca.crt"), cert, 0o600))
	return file
}

func TestResolve(t *testing.T) {
	parity.Proves(t, "CFG-127")
	parity.ProvesPart(t, 3, "CFG-110")
	a := newAuthority(t, time.Hour)
	cert, key := a.pair(ClientTemplate("n1"))
	dir := t.TempDir()
	boot := kubeconfig(t, filepath.Join(dir, "bootstrap"), nil, nil)
	good := kubeconfig(t, filepath.Join(dir, "good"), cert, key)
	token := kubeconfig(t, filepath.Join(dir, "token"), nil, nil)
	fresh, freshKey := newAuthority(t, 3*time.Hour).pair(ClientTemplate("n1"))
	chain := kubeconfig(t, filepath.Join(dir, "chain"), append(slices.Clone(fresh), cert...), freshKey)
	unlike := kubeconfig(t, filepath.Join(dir, "unlike"), cert, freshKey)
	// A kubeconfig that an agent has written refers to the file of its store.
	s := newStore(t, ClientPair)
	a.issue(s, ClientTemplate("n1"))
	written := filepath.Join(dir, "written")
	must(t, WriteKubeconfig(written, boot, s))
	broken := filepath.Join(dir, "broken")
	must(t, os.WriteFile(broken, []byte("apiVersion: v1\nclusters: {"), 0o600))
	none := filepath.Join(dir, "none")
	now, later := time.Now(), time.Now().Add(2*time.Hour)
	for _, tc := range []struct {
		name      string
		own, boot string
		at        time.Time
		uses      bool // the bootstrap file
		err       string
	}{
		{name: "a good kubeconfig: the bootstrap file is not read", own: good, boot: none, at: now},
		{name: "a kubeconfig with a token has no end", own: token, at: later},
		{name: "but gives way to the bootstrap file", own: token, boot: boot, at: now, uses: true},
		{name: "a certificate in a file", own: written, boot: none, at: now},
		{name: "one in a file that expired", own: written, boot: boot, at: later, uses: true},
		{name: "a chain that is good", own: chain, boot: none, at: now},
		{name: "a part of the chain expired", own: chain, boot: boot, at: later, uses: true},
		{name: "a certificate without its key", own: unlike, boot: boot, at: now, uses: true},
		{name: "none yet", own: none, boot: boot, at: now, uses: true},
		{name: "expired while the node was down", own: good, boot: boot, at: later, uses: true},
		{name: "broken", own: broken, boot: boot, at: now, uses: true},
		{name: "expired, and nothing else", own: good, at: later},
		{name: "none, and nothing else", own: none, at: now, err: "load kubeconfig " + none},
		{name: "broken, and nothing else", own: broken, at: now, err: "load kubeconfig " + broken},
		{name: "neither is there", own: none, boot: dir + "/no", at: now, err: "load kubeconfig " + dir + "/no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Resolve(tc.own, tc.boot, tc.at, logTo(t))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil || got.Bootstrap != tc.uses || got.Credentials.Host != "https://api:6443" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestWriteKubeconfig(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-129")
	dir := t.TempDir()
	boot := kubeconfig(t, filepath.Join(dir, "boot", "bootstrap"), nil, nil)
	s := newStore(t, ClientPair)
	file := filepath.Join(dir, "etc", "kubelet.conf")
	must(t, WriteKubeconfig(file, boot, s))
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", i, err)
	}
	got, err := clientcmd.LoadFromFile(file)
	must(t, err)
	user, cluster := got.AuthInfos["default-auth"], got.Clusters["default-cluster"]
	if got.CurrentContext != "default-context" || got.Contexts["default-context"].Namespace != "default" ||
		user.ClientCertificate != s.Path() || user.ClientKey != s.Path() || user.Token != "" ||
		cluster.Server != "https://api:6443" || cluster.CertificateAuthority != filepath.Join(dir, "boot", "ca.crt") ||
		cluster.TLSServerName != "api.local" {
		t.Errorf("%+v %+v %+v", got.Contexts["default-context"], user, cluster)
	}
}
