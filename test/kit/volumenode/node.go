package volumenode

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/await"
	"keelson/test/kit/eventlog"
)

// Config describes a node. Every field is required.
type Config struct {
	Root    string // the agent's directory
	Plugins func(*mount.Guard, pod.Events) []persistent.Plugin
	// Claims are the claims by their names.
	Claims map[string]Claim
	// Pods are the pods by their names, with the claims that each mounts.
	Pods map[string][]string
}

// Claim is the volume of a claim; Block is set if pods get it as a block device.
type Claim struct {
	Source v1.PersistentVolumeSource
	Block  bool
}

// Node is a running node.
type Node struct {
	*volume.Manager
	cfg  Config
	stop func() error
}

// Start starts a node with the state on the disk and in the mount table. It runs until Stop.
func Start(cfg Config) *Node {
	n := &Node{cfg: cfg}
	guard := mount.NewGuard()
	agent := NewAgent(persistent.Config{
		RootDir: cfg.Root,
		Guard:   guard,
		Events:  eventlog.Discard{},
		API:     api{cfg.Claims},
		Plugins: cfg.Plugins(guard, eventlog.Discard{}),
	}, volume.Config{})
	n.Manager = agent.Manager
	n.stop = agent.Start()
	agent.Persistent.Settle()
	return n
}

// Stop stops the node, and returns when no operation is under way.
func (n *Node) Stop() { _ = n.stop() }

// Pods are the node's pods, in the order of their names.
func (n *Node) Pods() []*v1.Pod {
	var out []*v1.Pod
	for _, name := range slices.Sorted(maps.Keys(n.cfg.Pods)) {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
		}
		c := &p.Spec.Containers[0]
		for _, claim := range n.cfg.Pods[name] {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
				Name: claim,
				VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
				},
			})
			if n.cfg.Claims[claim].Block {
				c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: claim, DevicePath: "/dev/x"})
			} else {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: claim, MountPath: "/" + claim})
			}
		}
		out = append(out, p)
	}
	return out
}

// Bring mounts the volumes of all pods.
func (n *Node) Bring(ctx context.Context) error {
	for _, p := range n.Pods() {
		n.Want(p)
	}
	return n.all(ctx, func(p *v1.Pod) error {
		s := n.State(p.UID)
		if s.Ready {
			return nil
		}
		return errors.Join(errors.New("volumes of pod "+p.Name+" are not ready"), s.Err)
	})
}

// Take unmounts the volumes of all pods and removes the pods' directories.
func (n *Node) Take(ctx context.Context) error {
	for _, p := range n.Pods() {
		n.Release(pod.RefOf(p))
	}
	err := n.all(ctx, func(p *v1.Pod) error {
		done, err := n.Released(p.UID)
		if done {
			return nil
		}
		return errors.Join(errors.New("volumes of pod "+p.Name+" are not released"), err)
	})
	if err != nil {
		return err
	}
	for _, p := range n.Pods() {
		if err := n.RemoveDir(ctx, p.UID); err != nil {
			return err
		}
	}
	return nil
}

// Empty waits until no mount, loop device or directory of any volume is left.
func (n *Node) Empty(ctx context.Context) error {
	return n.until(ctx, func() error {
		if left := Left(n.cfg.Root); len(left) > 0 {
			return errors.New("left: " + strings.Join(left, ", "))
		}
		return nil
	})
}

func (n *Node) all(ctx context.Context, missing func(*v1.Pod) error) error {
	return n.until(ctx, func() error {
		for _, p := range n.Pods() {
			if err := missing(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// until waits until missing returns nil. It polls, because no event reports the end of the last
// unstaging.
func (n *Node) until(ctx context.Context, missing func() error) error {
	return await.Poll(ctx, 2*time.Millisecond, func() (string, bool) {
		if err := missing(); err != nil {
			return err.Error(), false
		}
		return "", true
	})
}

// Left are the mounts, the loop devices and the entries of volume directories that are left below
// an agent's directory.
func Left(root string) (out []string) {
	points, err := mount.At(root)
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range points {
		out = append(out, "mount "+p)
	}
	for _, pattern := range []string{"pods/*/volumes/*/*", "pods/*/volumeDevices/*/*",
		"plugins/kubernetes.io/*/mounts/*", "plugins/kubernetes.io/*/volumeDevices/*",

		"plugins/kubernetes.io/*/*.json*", "plugins/kubernetes.io/*/.*.json*", "plugins/kubernetes.io/*/*-lun-*",
		"plugins/kubernetes.io/*/iface-*/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return []string{err.Error()}
		}
		out = append(out, found...)
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range loops {
		if text, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(text), root) {
			out = append(out, "loop device of "+strings.TrimSpace(string(text)))
		}
	}
	return out
}

// api is an API server that only has bound claims and their volumes.
type api struct{ claims map[string]Claim }

func (a api) Claim(_ context.Context, ns, name string) (*v1.PersistentVolumeClaim, error) {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name)},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: name},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}, nil
}

func (a api) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	mode := v1.PersistentVolumeFilesystem
	if a.claims[name].Block {
		mode = v1.PersistentVolumeBlock
	}
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		ClaimRef: &v1.ObjectReference{UID: types.UID(name)}, PersistentVolumeSource: a.claims[name].Source,
		VolumeMode: &mode}}, nil
}

func (api) PatchClaimStatus(context.Context, string, string, []byte) (*v1.PersistentVolumeClaim, error) {
	return nil, errors.New("nothing grows here")
}
