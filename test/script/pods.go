package script

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// manifest reads a pod. Fields that most pods have can be left out of the file.
func (r *Run) manifest(file string) (*corev1.Pod, error) {
	data, ok := r.Scenario.Files[file]
	if !ok {
		return nil, fmt.Errorf("there is no file %s in the scenario", file)
	}
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	if err := yaml.UnmarshalStrict([]byte(data), p); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if p.Name == "" {
		p.Name = strings.TrimSuffix(file, ".yaml")
	}
	p.Namespace = Namespace
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Image == "" {
				list[i].Image = Image
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		p.Spec.EphemeralContainers[i].Image = Image
	}
	return p, nil
}

// named reads the pod of an argument FILE or NAME=FILE. The second form gives the pod in the
// file the name NAME.
func (r *Run) named(a string) (*corev1.Pod, error) {
	name, file, other := strings.Cut(a, "=")
	if !other {
		file = name
	}
	p, err := r.manifest(file)
	if err != nil {
		return nil, err
	}
	if other {
		p.Name = strings.TrimSuffix(name, ".yaml")
	}
	r.specs[p.Name] = p
	return p, nil
}

// apply creates pods, or changes those that exist.
func (r *Run) apply(args []string) error {
	pods := r.API.CoreV1().Pods(Namespace)
	for _, a := range args {
		p, err := r.named(a)
		if err != nil {
			return err
		}
		p.Spec.NodeName = Node
		have, err := pods.Get(context.Background(), p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if _, err := pods.Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		// The fields of a running pod that a user may change.
		have.Spec.ActiveDeadlineSeconds = p.Spec.ActiveDeadlineSeconds
		for i, c := range p.Spec.Containers {
			have.Spec.Containers[i].Image = c.Image
		}
		have.Spec.EphemeralContainers = p.Spec.EphemeralContainers
		if _, err := pods.Update(context.Background(), have, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) delete(args []string) error {
	o, err := options(args[1:], "grace", "force")
	if err != nil {
		return err
	}
	var opts metav1.DeleteOptions
	if g, ok := o["grace"]; ok {
		n, err := strconv.ParseInt(g, 10, 64)
		if err != nil {
			return err
		}
		opts.GracePeriodSeconds = &n
	}
	if _, ok := o["force"]; ok {
		opts.GracePeriodSeconds = ptr.To[int64](0)
	}
	return r.API.CoreV1().Pods(Namespace).Delete(context.Background(), args[0], opts)
}

// gate sets a condition that a client other than the agent owns.
func (r *Run) gate(args []string) error {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, args[1], args[2])
	_, err := r.API.CoreV1().Pods(Namespace).Patch(context.Background(), args[0],
		"application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// overwrite writes fields of a pod's status as another client than the agent.
func (r *Run) overwrite(args []string) error {
	p, err := r.API.CoreV1().Pods(Namespace).Patch(context.Background(), args[0], types.StrategicMergePatchType,
		[]byte(`{"status":`+args[1]+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	r.chronicle.blame(p)
	return nil
}

// Static writes manifests of static pods, as an editor does.
func (r *Run) Static(args []string) error {
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		p, err := r.named(a)
		if err != nil {
			return err
		}
		if err := r.place(p, name); err != nil {
			return err
		}
	}
	return nil
}

// place writes a manifest and renames it into place.
func (r *Run) place(p *corev1.Pod, name string) error {
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(r.Path("manifests"), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (r *Run) unstatic(args []string) error {
	for _, file := range args {
		if err := os.Remove(filepath.Join(r.Path("manifests"), file)); err != nil {
			return err
		}
	}
	return nil
}

// restore removes manifests and writes them again before the agent can have read the directory.
// The kernel reports the removal and the creation.
func (r *Run) restore(args []string) error {
	if err := r.unstatic(args); err != nil {
		return err
	}
	for _, file := range args {
		r.manifests <- fsnotify.Event{Name: filepath.Join(r.Path("manifests"), file), Op: fsnotify.Remove}
	}
	return r.replace(args)
}

// replace renames manifests into place. The kernel reports the rename, and no removal.
func (r *Run) replace(args []string) error {
	if err := r.Static(args); err != nil {
		return err
	}
	for _, file := range args {
		at := filepath.Join(r.Path("manifests"), file)
		r.manifests <- fsnotify.Event{Name: at + ".new", Op: fsnotify.Rename}
		r.manifests <- fsnotify.Event{Name: at, Op: fsnotify.Create}
	}
	return nil
}

// class creates a RuntimeClass; without a handler it removes it. To change the
// handler of one that exists it deletes and creates it, since the field is immutable.
func (r *Run) class(args []string) error {
	ctx, classes := context.Background(), r.API.NodeV1().RuntimeClasses()
	err := classes.Delete(ctx, args[0], metav1.DeleteOptions{})
	if len(args) == 1 || err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = classes.Create(ctx, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: args[0]},
		Handler:    args[1],
	}, metav1.CreateOptions{})
	return err
}
