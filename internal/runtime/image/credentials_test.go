package image

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/parity"
)

func TestLookup(t *testing.T) {
	parity.Proves(t, "LIFE-101")
	for _, tc := range []struct {
		name      string
		locations []string
		image     string
		want      []string
	}{
		{"a registry", []string{"reg.example.com"}, "reg.example.com/a/b:1", []string{"reg.example.com"}},
		{"another registry", []string{"reg.example.com"}, "reg.example.org/a", nil},
		{
			"a scheme and a version do not count",
			[]string{"https://reg.example.com/v2/", "http://reg.example.com/v1/"},
			"reg.example.com/a",
			[]string{"https://reg.example.com/v2/", "http://reg.example.com/v1/"},
		},
		{
			"the longest first",
			[]string{"reg.example.com", "reg.example.com/a/b", "reg.example.com/a"},
			"reg.example.com/a/b/c",
			[]string{"reg.example.com/a/b", "reg.example.com/a", "reg.example.com"},
		},
		{"a path is a prefix", []string{"reg.example.com/a"}, "reg.example.com/b/a", nil},
		{"a star is one label", []string{"*.example.com"}, "reg.example.com/a", []string{"*.example.com"}},
		{"a star is not two labels", []string{"*.example.com"}, "a.reg.example.com/a", nil},
		{"a star is not nothing", []string{"*.example.com"}, "example.com/a", nil},
		{"a star within a label", []string{"r*.example.com"}, "reg.example.com/a", []string{"r*.example.com"}},
		{"a port must be the same", []string{"reg.example.com:5000"}, "reg.example.com/a", nil},
		{"the same port", []string{"*.example.com:5000"}, "reg.example.com:5000/a", []string{"*.example.com:5000"}},
		{
			"a short name is in the default registry",
			[]string{"https://index.docker.io/v1/"},
			"busybox",
			[]string{"https://index.docker.io/v1/"},
		},
		{
			"the default registry's other name",
			[]string{"docker.io", "https://index.docker.io/v1/"},
			"a/b",
			[]string{"docker.io"},
		},
		{
			"credentials of Docker Hub are for Docker Hub only",
			[]string{"https://index.docker.io/v1/"},
			"reg.example.com/a",
			nil,
		},
		{"a malformed glob matches nothing", []string{"[.example.com"}, "reg.example.com/a", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var k Keyring
			for _, l := range tc.locations {
				// An invalid location is rejected and matches nothing.
				_ = k.add(l, Credential{Auth: &runtimeapi.AuthConfig{Username: l}})
			}
			repo, err := repository(tc.image)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range k.Lookup(repo) {
				got = append(got, a.Auth.Username)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("Lookup(%s) = %q, want %q", tc.image, got, tc.want)
			}
		})
	}
}

func TestDockerConfig(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	for _, tc := range []struct {
		name, raw string
		legacy    bool
		user, pw  string
		err       string
	}{
		{name: "user and password", raw: `{"auths":{"r.io":{"username":"u","password":"p:q"}}}`, user: "u", pw: "p:q"},
		{
			name: "auth wins",
			raw: `{"auths":{"r.io":{"username":"x","password":"x","auth":"` + b64([]byte("u:p:q")) +
				`"}},"HttpHeaders":{"a":"b"}}`,
			user: "u",
			pw:   "p:q",
		},
		{
			name: "auth without padding",
			raw:  `{"auths":{"r.io":{"auth":"` + base64.RawStdEncoding.EncodeToString([]byte("u:pp")) + `"}}}`,
			user: "u",
			pw:   "pp",
		},
		{
			name:   "the legacy form",
			raw:    `{"r.io":{"auth":"` + b64([]byte("u:p")) + `","email":"e"}}`,
			legacy: true,
			user:   "u",
			pw:     "p",
		},
		{
			name: "auth that is not base64",
			raw:  `{"auths":{"r.io":{"auth":"!!!="}}}`,
			err:  "registry r.io: field auth: illegal base64 data at input byte 0",
		},
		{
			name: "auth without a colon",
			raw:  `{"auths":{"r.io":{"auth":"` + b64([]byte("u")) + `"}}}`,
			err:  "registry r.io: field auth: want base64 of username:password",
		},
		{
			name: "beside a registry that has no name",
			raw: `{"auths":{"http://[r.io":{"username":"x","password":"x"},"r.io":{"username":"u","password":"p"},` +
				`"r.io:port":{"username":"y","password":"y"}}}`,
			user: "u",
			pw:   "p",
		},
		{name: "not JSON", raw: `{"auths":`, err: "invalid JSON at byte 9"},
		{name: "another kind of JSON", raw: `{"auths":["hunter2"]}`, err: "not a configuration of Docker"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var k Keyring
			err := k.addConfig([]byte(tc.raw), tc.legacy, nil)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error = %v, want %s", err, tc.err)
				}
				return
			}
			got := k.Lookup("r.io/a")
			if err != nil || len(got) != 1 || got[0].Auth.Username != tc.user || got[0].Auth.Password != tc.pw {
				t.Errorf("Lookup = %v, %v; want %s %s", got, err, tc.user, tc.pw)
			}
		})
	}
}

func FuzzDockerConfig(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://r.io/v1/":{"auth":"dTpw"}}}`), "r.io/a")
	f.Add([]byte(`{"auths":{"*.[":{"username":"u"}}}`), "docker.io/library/busybox")
	f.Fuzz(func(t *testing.T, raw []byte, image string) {
		var k Keyring
		if k.addConfig(raw, false, nil) == nil {
			k.Lookup(image)
		}
	})
}

func TestNodeFiles(t *testing.T) {
	parity.Proves(t, "LIFE-100")
	const config = `{"auths":{"r.io":{"username":"config","password":"p"}}}`
	const legacy = `{"r.io":{"username":"legacy","password":"p"}}`
	root, home := t.TempDir(), t.TempDir()
	n := NodeFiles{
		ConfigDirs: []string{root, filepath.Join(home, ".docker"), ".docker"},
		LegacyDirs: []string{root, home},
	}
	put := func(p, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	user := func() (string, error) {
		got, err := n.Credentials(t.Context(), nil, "r.io/a")
		if len(got) == 0 {
			return "", err
		}
		return got[0].Auth.Username, err
	}
	expect := func(want string, wantErr bool) {
		t.Helper()
		if got, err := user(); got != want || (err != nil) != wantErr {
			t.Errorf("credentials of %q, %v; want %q, error %v", got, err, want, wantErr)
		}
	}
	expect("", false)
	put(filepath.Join(home, ".dockercfg"), legacy)
	expect("legacy", false)
	put(filepath.Join(home, ".docker", "config.json"), config)
	expect("config", false)
	put(filepath.Join(root, "config.json"), `{`)
	expect("config", true)
	put(filepath.Join(root, "config.json"), `{"auths":{"r.io":{"username":"root","password":"p"}}}`)
	expect("root", false)
	put(filepath.Join(root, "config.json"),
		`{"auths":{"r.io":{"username":"root","password":"p"},"r.io:port":{"username":"x","password":"p"}}}`)
	expect("root", true)

	t.Setenv("HOME", "/home/u")
	d := DefaultNodeFiles("/var/lib/kubelet")
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for i, dirs := range [][]string{d.ConfigDirs, d.LegacyDirs} {
		for j, dir := range dirs {
			if dirs[j], err = filepath.Abs(dir); err != nil {
				t.Fatal(err)
			}
		}
		want := [][]string{
			{"/var/lib/kubelet", cwd, "/home/u/.docker", "/.docker"},
			{"/var/lib/kubelet", cwd, "/home/u", "/"},
		}[i]
		if !slices.Equal(dirs, want) {
			t.Errorf("looks in %q, want %q", dirs, want)
		}
	}
}
