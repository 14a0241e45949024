package builtin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// defaultFileMode is the API's default.
const defaultFileMode = 0o644

func isTrue(b *bool) bool { return b != nil && *b }

func modeOr(mode, otherwise *int32) os.FileMode {
	switch {
	case mode != nil:
		return os.FileMode(*mode)
	case otherwise != nil:
		return os.FileMode(*otherwise)
	}
	return defaultFileMode
}

// pick selects the keys that items name, or all keys, of an object's data.
func pick(
	data map[string][]byte, items []v1.KeyToPath, mode *int32, optional bool, missing string,
) (map[string]file, error) {
	files := map[string]file{}
	if len(items) == 0 {
		for key, b := range data {
			files[key] = file{data: b, mode: modeOr(nil, mode)}
		}
		return files, nil
	}
	for _, item := range items {
		b, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return nil, fmt.Errorf("%s: %s", missing, item.Key)
		}
		files[item.Path] = file{data: b, mode: modeOr(item.Mode, mode)}
	}
	return files, nil
}

// configMapFiles returns the files of a ConfigMap; none if an optional one does not exist.
func configMapFiles(
	ctx context.Context, o Objects, namespace, name string, items []v1.KeyToPath, mode *int32, optional *bool,
) (map[string]file, error) {
	ctx, stop := context.WithTimeout(ctx, objectTimeout)
	defer stop()
	cm, err := o.ConfigMap(ctx, namespace, name)
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	maps.Copy(data, cm.BinaryData)
	return pick(data, items, mode, isTrue(optional), "configmap references non-existent config key")
}

// secretFiles returns the files of a Secret; none if an optional one does not exist.
func secretFiles(
	ctx context.Context, o Objects, namespace, name string, items []v1.KeyToPath, mode *int32, optional *bool,
) (map[string]file, error) {
	ctx, stop := context.WithTimeout(ctx, objectTimeout)
	defer stop()
	s, err := o.Secret(ctx, namespace, name)
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pick(s.Data, items, mode, isTrue(optional), "references non-existent secret key")
}

// downwardFiles returns the files of a downwardAPI volume.
func downwardFiles(
	p *v1.Pod, items []v1.DownwardAPIVolumeFile, mode *int32, allocatable v1.ResourceList,
) (map[string]file, error) {
	files := map[string]file{}
	var errs []error
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = pod.FieldValue(p, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = pod.ResourceValue(p, "", item.ResourceFieldRef, allocatable)
		default:
			err = fmt.Errorf("downward API file %s names neither a field nor a resource", item.Path)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files[item.Path] = file{data: []byte(value), mode: modeOr(item.Mode, mode)}
	}
	return files, utilerrors.NewAggregate(errs)
}

func configMapKind(cfg Config) filesKind {
	return filesKind{
		cfg:    cfg,
		plugin: "kubernetes.io/configmap",
		serves: func(v *v1.Volume) bool { return v.ConfigMap != nil },
		inputs: func(v *v1.Volume) volume.Inputs {
			return volume.Inputs{Objects: []volume.Object{{Kind: volume.ConfigMap, Name: v.ConfigMap.Name}}}
		},
		collect: func(ctx context.Context, p *v1.Pod, v *v1.Volume) (map[string]file, time.Time, error) {
			s := v.ConfigMap
			files, err := configMapFiles(ctx, cfg.Objects, p.Namespace, s.Name, s.Items, s.DefaultMode, s.Optional)
			return files, time.Time{}, err
		},
	}
}

func secretKind(cfg Config) filesKind {
	return filesKind{
		cfg:    cfg,
		plugin: "kubernetes.io/secret",
		memory: true,
		serves: func(v *v1.Volume) bool { return v.Secret != nil },
		inputs: func(v *v1.Volume) volume.Inputs {
			return volume.Inputs{Objects: []volume.Object{{Kind: volume.Secret, Name: v.Secret.SecretName}}}
		},
		collect: func(ctx context.Context, p *v1.Pod, v *v1.Volume) (map[string]file, time.Time, error) {
			s := v.Secret
			files, err := secretFiles(ctx, cfg.Objects, p.Namespace, s.SecretName, s.Items, s.DefaultMode, s.Optional)
			return files, time.Time{}, err
		},
	}
}

func downwardKind(cfg Config) filesKind {
	return filesKind{
		cfg:    cfg,
		plugin: "kubernetes.io/downward-api",
		memory: true,
		serves: func(v *v1.Volume) bool { return v.DownwardAPI != nil },
		inputs: func(*v1.Volume) volume.Inputs { return volume.Inputs{Pod: true} },
		collect: func(_ context.Context, p *v1.Pod, v *v1.Volume) (map[string]file, time.Time, error) {
			files, err := downwardFiles(p, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode, cfg.Allocatable())
			return files, time.Time{}, err
		},
	}
}

func projectedKind(cfg Config) filesKind {
	return filesKind{
		cfg:        cfg,
		plugin:     "kubernetes.io/projected",
		memory:     true,
		forgetters: cfg.forgetters(),
		serves:     func(v *v1.Volume) bool { return v.Projected != nil },
		inputs: func(v *v1.Volume) volume.Inputs {
			var in volume.Inputs
			for _, s := range v.Projected.Sources {
				switch {
				case s.ConfigMap != nil:
					in.Objects = append(in.Objects, volume.Object{Kind: volume.ConfigMap, Name: s.ConfigMap.Name})
				case s.Secret != nil:
					in.Objects = append(in.Objects, volume.Object{Kind: volume.Secret, Name: s.Secret.Name})
				case s.ClusterTrustBundle != nil:
					in.Objects = append(in.Objects, anyBundle)
				case s.PodCertificate != nil:
					in.Objects = append(in.Objects, volume.Object{Kind: volume.Certificate, Name: v.Name})
				case s.DownwardAPI != nil:
					in.Pod = true
				}
			}
			return in
		},
		collect: func(ctx context.Context, p *v1.Pod, v *v1.Volume) (map[string]file, time.Time, error) {
			return projectedFiles(ctx, cfg, p, v.Name, v.Projected)
		},
	}
}

// projectedFiles returns the files of all sources. The error joins those of all sources.
func projectedFiles(
	ctx context.Context, cfg Config, p *v1.Pod, name string, v *v1.ProjectedVolumeSource,
) (map[string]file, time.Time, error) {
	files := map[string]file{}
	var renewAt time.Time
	var errs []error
	for i, s := range v.Sources {
		var some map[string]file
		var at time.Time // of the next refresh
		var err error
		switch {
		case s.ConfigMap != nil:
			some, err = configMapFiles(ctx, cfg.Objects, p.Namespace, s.ConfigMap.Name, s.ConfigMap.Items,
				v.DefaultMode,
				s.ConfigMap.Optional)
		case s.Secret != nil:
			some, err = secretFiles(ctx, cfg.Objects, p.Namespace, s.Secret.Name, s.Secret.Items, v.DefaultMode,
				s.Secret.Optional)
		case s.DownwardAPI != nil:
			some, err = downwardFiles(p, s.DownwardAPI.Items, v.DefaultMode, cfg.Allocatable())
		case s.ServiceAccountToken != nil:
			some, at, err = tokenFiles(ctx, cfg.Tokens, p, s.ServiceAccountToken, v.DefaultMode)
		case s.ClusterTrustBundle != nil:
			some, err = trustFiles(ctx, cfg.Bundles, p, s.ClusterTrustBundle, v.DefaultMode)
		case s.PodCertificate != nil:
			some, at, err = certificateFiles(ctx, cfg.Certificates, p, name, i, s.PodCertificate, v.DefaultMode)
		default:
			err = errors.New("projected source names nothing to project")
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		renewAt = clock.Earlier(renewAt, at)
		maps.Copy(files, some)
	}
	if err := awaited(errs); err != nil {
		return nil, time.Time{}, err
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return nil, time.Time{}, err
	}
	return files, renewAt, nil
}

// tokenFiles returns the file of a service account token.
func tokenFiles(
	ctx context.Context, t Tokens, p *v1.Pod, s *v1.ServiceAccountTokenProjection, mode *int32,
) (map[string]file, time.Time, error) {
	var audiences []string
	if s.Audience != "" {
		audiences = []string{s.Audience}
	}
	value, renewAt, err := t.Token(ctx, p, audiences, s.ExpirationSeconds)
	if err != nil {
		return nil, time.Time{}, err
	}
	return map[string]file{s.Path: privateFile(p, []byte(value), mode)}, renewAt, nil
}
