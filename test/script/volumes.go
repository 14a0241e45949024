package script

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// put creates objects other than pods, or replaces them.
func (r *Run) put(args []string) error {
	for _, file := range args {
		data, ok := r.Scenario.Files[file]
		if !ok {
			return fmt.Errorf("there is no file %s in the scenario", file)
		}
		if err := r.putOne([]byte(data), strings.TrimSuffix(file, ".yaml")); err != nil {
			return fmt.Errorf("put %s: %w", file, err)
		}
	}
	return nil
}

func (r *Run) putOne(data []byte, name string) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(data, &meta); err != nil {
		return err
	}
	ctx, core := context.Background(), r.API.CoreV1()
	switch meta.Kind {
	case "ConfigMap":
		return putAs(ctx, data, name, &corev1.ConfigMap{}, core.ConfigMaps(Namespace))
	case "Secret":
		return putAs(ctx, data, name, &corev1.Secret{}, core.Secrets(Namespace))
	case "ResourceClaim":
		return putAs(ctx, data, name, &resourcev1.ResourceClaim{}, r.API.ResourceV1().ResourceClaims(Namespace))
	case "RuntimeClass":
		return putAs(ctx, data, name, &nodev1.RuntimeClass{}, r.API.NodeV1().RuntimeClasses())
	case "PersistentVolumeClaim":
		return putAs(ctx, data, name, &corev1.PersistentVolumeClaim{}, core.PersistentVolumeClaims(Namespace))
	case "PersistentVolume":
		return r.putVolume(ctx, data, name)
	}
	return fmt.Errorf("kind %q is not known here", meta.Kind)
}

// putVolume is put of a PersistentVolume. It sets the UID of the claim to which the volume is
// bound, as the controller does, so the claim must exist.
func (r *Run) putVolume(ctx context.Context, data []byte, name string) error {
	pv := &corev1.PersistentVolume{}
	if err := yaml.UnmarshalStrict(data, pv); err != nil {
		return err
	}
	if ref := pv.Spec.ClaimRef; ref != nil && ref.UID == "" {
		claim, err := r.API.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ref.Namespace, ref.UID = Namespace, claim.UID
	}
	full, err := yaml.Marshal(pv)
	if err != nil {
		return err
	}
	return putAs(ctx, full, name, pv, r.API.CoreV1().PersistentVolumes())
}

// putter is a client for one kind of objects.
type putter[T metav1.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Get(context.Context, string, metav1.GetOptions) (T, error)
}

func putAs[T metav1.Object](ctx context.Context, data []byte, name string, obj T, client putter[T]) error {
	if err := yaml.UnmarshalStrict(data, obj); err != nil {
		return err
	}
	if obj.GetName() == "" {
		obj.SetName(name)
	}
	have, err := client.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, obj, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	obj.SetNamespace(have.GetNamespace())
	obj.SetResourceVersion(have.GetResourceVersion())
	_, err = client.Update(ctx, obj, metav1.UpdateOptions{})
	return err
}

// take deletes an object. An object with finalizers gets a deletion timestamp.
func (r *Run) take(args []string) error {
	switch args[0] {
	case "PersistentVolumeClaim":
		return r.API.CoreV1().PersistentVolumeClaims(Namespace).Delete(context.Background(), args[1],
			metav1.DeleteOptions{})
	case "ConfigMap":
		return r.API.CoreV1().ConfigMaps(Namespace).Delete(context.Background(), args[1], metav1.DeleteOptions{})
	case "Secret":
		return r.API.CoreV1().Secrets(Namespace).Delete(context.Background(), args[1], metav1.DeleteOptions{})
	}
	return fmt.Errorf("kind %q is not known here", args[0])
}

// showMounted shows the mounts for pods on the node: the file system and the mount point.
func (r *Run) showMounted(pod string) (string, error) {
	base := r.Path("kubelet/pods") + "/"
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(r.Path("kubelet/pods")))
	if err != nil {
		return "", err
	}
	var lines []string
	for _, m := range list {
		kind := m.FSType
		if m.Root != "/" {
			kind = "bind"
		}
		line := r.plain(kind + " " + strings.TrimPrefix(m.Mountpoint, base))
		if pod == "" || strings.Contains(line, "<"+pod+">/") {
			lines = append(lines, line+"\n")
		}
	}
	slices.Sort(lines)
	return cmp.Or(strings.Join(lines, ""), "nothing\n"), nil
}

// config is the configuration of a container's latest instance that the runtime got.
func (r *Run) config(pod, container string) (*cri.ContainerConfig, error) {
	pods := r.Runtime.Pods()
	slices.Reverse(pods)
	for _, p := range pods {
		if p.Name != Namespace+"/"+pod {
			continue
		}
		slices.Reverse(p.Containers)
		for _, c := range p.Containers {
			if c.Config.GetMetadata().GetName() == container {
				return c.Config, nil
			}
		}
	}
	return nil, fmt.Errorf("the runtime has no container %s/%s", pod, container)
}

// showVolumeStatuses shows the volume mounts in the container statuses at the API server.
func (r *Run) showVolumeStatuses(args []string) (string, error) {
	p := r.Server.Pod(Namespace, args[0])
	if p == nil {
		return "", fmt.Errorf("there is no pod %s", args[0])
	}
	var b strings.Builder
	for _, c := range p.Status.ContainerStatuses {
		for _, m := range c.VolumeMounts {
			fmt.Fprintf(&b, "%s %s %s", c.Name, m.Name, m.MountPath)
			if m.ReadOnly {
				b.WriteString(" ro")
			}
			if m.RecursiveReadOnly != nil {
				fmt.Fprintf(&b, " recursively %s", *m.RecursiveReadOnly)
			}
			b.WriteString("\n")
		}
	}
	return cmp.Or(b.String(), "nothing\n"), nil
}

var eightHex = regexp.MustCompile(`/[0-9a-f]{8}\b`)

// showMounts shows a container's mounts and their options.
func (r *Run) showMounts(pod, container string) (string, error) {
	c, err := r.config(pod, container)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, m := range c.GetMounts() {
		fmt.Fprintf(&b, "%s %s", m.GetContainerPath(), strings.TrimPrefix(m.GetHostPath(), r.Path("kubelet/pods")+"/"))
		if m.GetReadonly() {
			b.WriteString(" ro")
		}
		if m.GetRecursiveReadOnly() {
			b.WriteString(" recursively")
		}
		if p := m.GetPropagation(); p != cri.MountPropagation_PROPAGATION_PRIVATE {
			b.WriteString(" " + p.String())
		}
		b.WriteString("\n")
	}
	return eightHex.ReplaceAllString(r.plain(b.String()), "/<8 hex>"), nil
}

// showToken shows the claims of a service account token, when it was issued, and the mode
// and owner of its file.
func (r *Run) showToken(pod, container, path string) (string, error) {
	on, err := r.onHost(pod, container, path)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(on)
	if err != nil {
		return "", err
	}
	parts := strings.Split(string(data), ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("%s is no token: %q", path, data)
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var claims struct {
		Audiences []string `json:"aud"`
		Issued    int64    `json:"iat"`
		Expires   int64    `json:"exp"`
		Subject   string   `json:"sub"`
		Bound     struct {
			Pod struct{ Name, UID string } `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		return "", err
	}
	st, err := os.Stat(on)
	if err != nil {
		return "", err
	}
	// Each renewal is up to ten seconds early, and may wait a little for the renewal of
	// another token, so the time is rounded to the nearest minute.
	minutes := int(time.Unix(claims.Issued, 0).Sub(r.begin).Round(time.Minute) / time.Minute)
	return r.plain(fmt.Sprintf("%s for %v, bound to %s %s, for %d s, from minute %d, mode %o owner %d\n",
		claims.Subject, claims.Audiences,
		claims.Bound.Pod.Name, claims.Bound.Pod.UID, claims.Expires-claims.Issued, minutes, st.Mode().Perm(),
		st.Sys().(*syscall.Stat_t).Uid)), nil
}

// onHost is the host path of a path in a container.
func (r *Run) onHost(pod, container, path string) (string, error) {
	c, err := r.config(pod, container)
	if err != nil {
		return "", err
	}
	for _, m := range c.GetMounts() {
		if rest, below := strings.CutPrefix(path, m.GetContainerPath()); below && m.GetHostPath() != "" {
			return filepath.Join(m.GetHostPath(), rest), nil
		}
	}
	return "", fmt.Errorf("nothing is mounted at %s of %s/%s", path, pod, container)
}

// read shows the content of a file, or the names in a directory, of a container.
func (r *Run) read(pod, container, path string) (string, error) {
	on, err := r.onHost(pod, container, path)
	if err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(on); err == nil {
		var names []string
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "..") {
				names = append(names, e.Name())
			}
		}
		return cmp.Or(strings.Join(names, " "), "nothing") + "\n", nil
	}
	data, err := os.ReadFile(on)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(data), "\n") + "\n", nil
}
