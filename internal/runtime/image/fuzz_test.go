package image

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// FuzzNames parses arbitrary image names.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"web",
		"web:1",
		"registry.example:5000/a/b@sha256:" + strings.Repeat("0", 64),
		"localhost/x",
		"UPPER",
		"a//b",
		":1",
		"a:b:c",
		"",
		"docker.io/library/a:latest",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		tagged, err := withTag(name)
		repo, repoErr := repository(name)
		if (err == nil) != (repoErr == nil) {
			t.Fatalf("%q: %v, but its repository: %v", name, err, repoErr)
		}
		if policy := policyFor("", name); policy != v1.PullAlways && policy != v1.PullIfNotPresent {
			t.Errorf("%q is pulled %q", name, policy)
		}
		if err != nil {
			return
		}
		if tagged != name && tagged != name+":latest" {
			t.Errorf("%q became %q", name, tagged)
		}
		if again, err := withTag(tagged); err != nil || again != tagged {
			t.Errorf("%q became %q and then %q, %v", name, tagged, again, err)
		}
		if other, err := repository(tagged); err != nil || other != repo {
			t.Errorf("the repository of %q is %q, and with its tag %q, %v", name, repo, other, err)
		}
		if strings.ContainsAny(repo, "@ \n\t") {
			t.Errorf("the repository of %q is %q", name, repo)
		}
	})
}
