package image

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
)

// maxConfig bounds the size of a credential file. It is the maximum size of a Secret.
const maxConfig = 1 << 20

// dockerEntry is one registry of a Docker configuration.
type dockerEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"` // base64 of username:password
}

func (d dockerEntry) credential() (*runtimeapi.AuthConfig, error) {
	if d.Auth == "" {
		return &runtimeapi.AuthConfig{Username: d.Username, Password: d.Password}, nil
	}
	enc := base64.StdEncoding
	if !strings.HasSuffix(d.Auth, "=") {
		enc = base64.RawStdEncoding // some tools omit the padding
	}
	b, err := enc.DecodeString(d.Auth)
	if err != nil {
		return nil, fmt.Errorf("field auth: %w", err)
	}
	user, password, ok := strings.Cut(string(b), ":")
	if !ok {
		return nil, errors.New("field auth: want base64 of username:password")
	}
	return &runtimeapi.AuthConfig{Username: user, Password: strings.Trim(password, "\x00")}, nil
}

// addConfig adds the entries of a config.json, or with legacy set of a .dockercfg, which is its map
// of registries alone. from is the secret that contains it, nil for the node's. Entries with an
// invalid registry name are skipped. Errors never quote the content, which is secret.
func (k *Keyring) addConfig(raw []byte, legacy bool, from *v1.Secret) error {
	entries := map[string]dockerEntry{}
	var err error
	if legacy {
		err = json.Unmarshal(raw, &entries)
	} else {
		var file struct {
			Auths map[string]dockerEntry `json:"auths"`
		}
		err = json.Unmarshal(raw, &file)
		entries = file.Auths
	}
	if err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("invalid JSON at byte %d", syntax.Offset)
		}
		return errors.New("not a configuration of Docker")
	}
	for _, location := range slices.Sorted(maps.Keys(entries)) {
		auth, err := entries[location].credential()
		if err != nil {
			return fmt.Errorf("registry %s: %w", location, err)
		}
		cred := Credential{Auth: auth}
		if from != nil {
			cred.Secret = &v1beta1.ImagePullSecret{
				UID:            string(from.UID),
				Namespace:      from.Namespace,
				Name:           from.Name,
				CredentialHash: Hash(auth),
			}
		}
		if err := k.add(location, cred); err != nil {
			if from != nil {
				err = fmt.Errorf("read image pull secret %s/%s: %w", from.Namespace, from.Name, err)
			}
			k.unusable = append(k.unusable, err)
		}
	}
	return nil
}

// addSecret adds a pull secret. Other types of secrets are ignored.
func (k *Keyring) addSecret(s *v1.Secret) error {
	var err error
	if raw, ok := s.Data[v1.DockerConfigJsonKey]; ok && s.Type == v1.SecretTypeDockerConfigJson {
		err = k.addConfig(raw, false, s)
	} else if raw, ok := s.Data[v1.DockerConfigKey]; ok && s.Type == v1.SecretTypeDockercfg {
		err = k.addConfig(raw, true, s)
	}
	if err != nil {
		return fmt.Errorf("read image pull secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// NodeFiles is the source of the node's credential files. They are read for each pull, since they
// may change at any time.
type NodeFiles struct {
	ConfigDirs []string // searched for config.json
	LegacyDirs []string // searched for .dockercfg if there is no config.json
}

// DefaultNodeFiles returns the default locations of Docker and the kubelet.
func DefaultNodeFiles(rootDir string) NodeFiles {
	home := os.Getenv("HOME")
	cwd := "."
	if wd, err := os.Getwd(); err == nil {
		cwd = wd
	}
	return NodeFiles{
		ConfigDirs: []string{rootDir, cwd, filepath.Join(home, ".docker"), "/.docker"},
		LegacyDirs: []string{rootDir, cwd, home, "/"},
	}
}

// Credentials implements [Source].
func (n NodeFiles) Credentials(_ context.Context, _ *v1.Pod, repository string) ([]Credential, error) {
	var problems []error
	for _, kind := range []struct {
		dirs   []string
		file   string
		legacy bool
	}{{n.ConfigDirs, configFile, false}, {n.LegacyDirs, legacyConfigFile, true}} {
		for _, dir := range kind.dirs {
			if !filepath.IsAbs(dir) {
				continue
			}
			p := filepath.Join(dir, kind.file)
			raw, err := readConfig(p)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var ring Keyring
			if err == nil {
				err = ring.addConfig(raw, kind.legacy, nil)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("read %s: %w", p, err))
				continue
			}
			for _, odd := range ring.unusable {
				problems = append(problems, fmt.Errorf("read %s: %w", p, odd))
			}
			return ring.Lookup(repository), errors.Join(problems...)
		}
	}
	return nil, errors.Join(problems...)
}

func readConfig(p string) ([]byte, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(raw) > maxConfig {
		err = fmt.Errorf("larger than %d bytes", maxConfig)
	}
	return raw, err
}
