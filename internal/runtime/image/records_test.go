package image

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/parity"
)

// fakeRecords grants an image to pods with a credential that has its password.
type fakeRecords struct {
	mu       sync.Mutex
	password map[string]string // by reference; missing: public
	broken   error
	logged   []string
}

func (f *fakeRecords) MustPull(_, ref string, held func() ([]Credential, error)) bool {
	f.mu.Lock()
	password, private := f.password[ref]
	f.mu.Unlock()
	if !private {
		return false
	}
	creds, err := held()
	return err != nil || !slices.ContainsFunc(creds, func(c Credential) bool { return c.Auth.Password == password })
}

func (f *fakeRecords) note(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logged = append(f.logged, s)
}

func (f *fakeRecords) Pulling(name string) error {
	f.note("pulling " + name)
	return f.broken
}

func (f *fakeRecords) Pulled(name, ref string, with Credential) {
	by := "no pod"
	if with.Secret != nil {
		by = with.Secret.Name
	}
	f.note("pulled " + name + " " + ref + " with " + by)
}

func (f *fakeRecords) Failed(name string) { f.note("failed " + name) }

func TestPullRecords(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-104")
	parity.ProvesPart(t, 3, "LIFE-97")
	const name = "reg.example.com/a:1"
	secrets := fakeSecrets{
		"right": dockerSecret("right", `{"reg.example.com":{"username":"right","password":"pw"}}`),
		"wrong": dockerSecret("wrong", `{"reg.example.com":{"username":"wrong","password":"x"}}`),
	}
	request := func(uid, secret string, policy v1.PullPolicy) Request {
		req := want(uid, name, policy, 0)
		if secret != "" {
			req.Pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: secret}}
		}
		return req
	}
	for _, tc := range []struct {
		title, secret string
		policy        v1.PullPolicy
		reason        string // empty: the pod gets the image
		pulls         []string
		logged        []string
	}{
		{"a pod with the credential gets it without a pull", "right", v1.PullIfNotPresent, "", nil, nil},
		{
			"a pod without has to pull and fails",
			"",
			v1.PullIfNotPresent,
			"ErrImagePull",
			[]string{""},
			[]string{"pulling " + name, "failed " + name},
		},
		{
			"a pod with another one has to pull and fails",
			"wrong",
			v1.PullIfNotPresent,
			"ErrImagePull",
			[]string{"wrong"},
			[]string{"pulling " + name, "failed " + name},
		},
		{"a pod that never pulls is refused", "", v1.PullNever, "ErrImageNeverPull", nil, nil},
		{
			"a pull is recorded with what opened the registry",
			"right",
			v1.PullAlways,
			"",
			[]string{"right"},
			[]string{"pulling " + name, "pulled " + name + " sha256:" + name + " with right"},
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			records := &fakeRecords{password: map[string]string{"sha256:here": "pw"}}
			inTime(t, func(c *Config) { c.Secrets, c.Records = secrets, records }, func(t *testing.T, r *rig) {
				r.fake.images[name] = &runtimeapi.Image{Id: "sha256:here"}
				r.fake.remote[name] = "pw"
				res, ready := r.reached(request("u1", tc.secret, tc.policy))
				if ready != (tc.reason == "") || res.Err != nil && res.Err.Reason != tc.reason {
					t.Errorf("Ensure = %+v, %v", res.Err, ready)
				}
				events := strings.Join(r.events.Take(), "\n")
				for policy, want := range map[v1.PullPolicy]string{
					v1.PullIfNotPresent: `pod-u1/main Normal Pulled Container image "` + name +
						`" already present on machine and can be accessed by the pod`,
					v1.PullNever: `pod-u1/main Warning ErrImageNeverPull Container image "` + name +
						`" is not present with pull policy of Never`,
				} {
					if tc.policy == policy && len(tc.pulls) == 0 && !strings.Contains(events, want) {
						t.Errorf("events\n%s\nwant\n%s", events, want)
					}
				}
				if !slices.Equal(r.fake.pulls, tc.pulls) || !slices.Equal(records.logged, tc.logged) {
					t.Errorf("pulls by %q, record calls %q; want %q, %q", r.fake.pulls, records.logged, tc.pulls,
						tc.logged)
				}
			})
		})
	}
	t.Run("nothing is pulled that cannot be recorded", func(t *testing.T) {
		records := &fakeRecords{broken: errors.New("disk full")}
		inTime(t, func(c *Config) { c.Records = records }, func(t *testing.T, r *rig) {
			res, ready := r.reached(want("u1", "web:1", v1.PullIfNotPresent, 0))
			if ready || res.Err.Reason != "ErrImagePull" || len(r.fake.pulls) != 0 {
				t.Errorf("Ensure = %+v, %v after %d pulls", res.Err, ready, len(r.fake.pulls))
			}
		})
	})
}

func dockerSecret(name, config string) *v1.Secret {
	s := &v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(config)}}
	s.Name = name
	return s
}
