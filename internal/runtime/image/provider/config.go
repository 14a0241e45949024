package provider

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

const (
	configKind   = "CredentialProviderConfig"
	configGroup  = "kubelet.config.k8s.io"
	requestGroup = "credentialprovider.kubelet.k8s.io"
)

// versions are those of the configuration file, and of the plugin protocol.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// read reads the configuration. If path is a directory, all files in it are read in the order of
// their names.
func read(path string, tokens bool) ([]kubeletv1.CredentialProvider, error) {
	files := []string{path}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read credential provider configuration: %w", err)
	}
	if st.IsDir() {
		if files, err = configFiles(path); err != nil {
			return nil, fmt.Errorf("read credential provider configuration: %w", err)
		}
	}
	var all []kubeletv1.CredentialProvider
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read credential provider configuration: %w", err)
		}
		list, err := parse(raw, tokens)
		if err != nil {
			return nil, fmt.Errorf("read credential provider configuration %s: %w", file, err)
		}
		all = append(all, list...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read credential provider configuration %s: no providers", path)
	}
	return all, unique(all)
}

func configFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// parse parses one file. The versions differ in the fields allowed only.
func parse(raw []byte, tokens bool) ([]kubeletv1.CredentialProvider, error) {
	var file kubeletv1.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		return nil, err
	}
	version, ok := strings.CutPrefix(file.APIVersion, configGroup+"/")
	if !ok || file.Kind != configKind || !slices.Contains(versions, version) {
		return nil, fmt.Errorf("kind %q of %q is not a %s of %s", file.Kind, file.APIVersion, configKind, configGroup)
	}
	if len(file.Providers) == 0 {
		return nil, errors.New("providers: at least one is required")
	}
	for i := range file.Providers {
		p := &file.Providers[i]
		if err := check(p, tokens); err != nil {
			return nil, fmt.Errorf("providers[%d] (%s): %w", i, p.Name, err)
		}
		if version != "v1" && p.TokenAttributes != nil {
			return nil, fmt.Errorf("providers[%d] (%s): tokenAttributes: not in version %s", i, p.Name, version)
		}
	}
	return file.Providers, nil
}

func unique(all []kubeletv1.CredentialProvider) error {
	seen := map[string]bool{}
	for _, p := range all {
		if seen[p.Name] {
			return fmt.Errorf("read credential provider configuration: provider %q: named twice", p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}

func check(p *kubeletv1.CredentialProvider, tokens bool) error {
	version, ok := strings.CutPrefix(p.APIVersion, requestGroup+"/")
	switch {
	case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ \t\n"):
		return errors.New("name: must be the name of a file, without spaces")
	case len(p.MatchImages) == 0:
		return errors.New("matchImages: at least one is required")
	case p.DefaultCacheDuration == nil:
		return errors.New("defaultCacheDuration: is required")
	case p.DefaultCacheDuration.Duration < 0:
		return fmt.Errorf("defaultCacheDuration: %v must not be negative", p.DefaultCacheDuration.Duration)
	case !ok || !slices.Contains(versions, version):
		return fmt.Errorf("apiVersion: %q must be %s of %s", p.APIVersion, strings.Join(versions, ", "), requestGroup)
	case p.TokenAttributes == nil:
		return nil
	case !tokens:
		return errors.New(
			"tokenAttributes: not allowed while the gate KubeletServiceAccountTokenForCredentialProviders is off")
	case version != "v1":
		return fmt.Errorf("tokenAttributes: needs apiVersion %s/v1", requestGroup)
	}
	if err := checkTokens(p.TokenAttributes); err != nil {
		return fmt.Errorf("tokenAttributes.%w", err)
	}
	return nil
}

func checkTokens(t *kubeletv1.ServiceAccountTokenAttributes) error {
	required, optional := t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys
	switch {
	case t.ServiceAccountTokenAudience == "":
		return errors.New("serviceAccountTokenAudience: is required")
	case t.RequireServiceAccount == nil:
		return errors.New("requireServiceAccount: is required")
	case t.CacheType != kubeletv1.TokenServiceAccountTokenCacheType &&
		t.CacheType != kubeletv1.ServiceAccountServiceAccountTokenCacheType:
		return fmt.Errorf("cacheType: %q must be Token or ServiceAccount", t.CacheType)
	case len(required) > 0 && !*t.RequireServiceAccount:
		return errors.New("requiredServiceAccountAnnotationKeys: needs requireServiceAccount")
	}
	seen := map[string]bool{}
	for _, k := range slices.Concat(required, optional) {
		if k == "" || seen[k] {
			return fmt.Errorf(
				"requiredServiceAccountAnnotationKeys and optionalServiceAccountAnnotationKeys: %q: empty or named twice", k)
		}
		seen[k] = true
	}
	return nil
}

// program returns the path of the plugin's executable.
func program(dir, name string) (string, error) {
	p, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		p, err = exec.LookPath(p)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find credential provider %s: no such file in %s", name, dir)
	}
	if err != nil {
		return "", fmt.Errorf("find credential provider %s: %w", name, err)
	}
	return p, nil
}
