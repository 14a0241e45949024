package script

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/resources/eviction"
	"keelson/test/kit/fakecri"
)

// roomy is the capacity of each signal that a scenario does not set.
const roomy = 1 << 40

// gauges simulate the measurements for evictions: what the scenario sets as available on the node,
// less the usage of running pods and of images.
type gauges struct {
	world *World

	mu     sync.Mutex
	left   map[eviction.Signal]int64 // available, without the usage of pods
	blind  map[eviction.Signal]bool  // signals that cannot be measured
	uses   map[string]eviction.Use   // by pod/container; the volumes by pod/
	images map[string]int64          // the sizes of images on the disks
	disks  eviction.Disks
}

func newGauges(w *World) *gauges {
	return &gauges{
		world:  w,
		left:   map[eviction.Signal]int64{},
		blind:  map[eviction.Signal]bool{},
		uses:   map[string]eviction.Use{},
		images: map[string]int64{},
	}
}

// Disks is part of an eviction.Source.
func (g *gauges) Disks(context.Context) (eviction.Disks, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.disks, nil
}

// Observe returns what the scenario has set as available, less the usage of running pods and of
// images that exist.
func (g *gauges) Observe(_ context.Context, signals []eviction.Signal) eviction.Observations {
	running, there := g.running(), g.imagesThere()
	g.mu.Lock()
	defer g.mu.Unlock()
	out := eviction.Observations{}
	for _, s := range signals {
		if g.blind[s] {
			continue
		}
		o := eviction.Observation{Capacity: roomy, Available: roomy, At: time.Now()}
		if n, ok := g.left[s]; ok {
			o.Available = n
		}
		for name := range running {
			u := g.uses[name]
			switch {
			case strings.HasPrefix(string(s), "memory") || strings.HasPrefix(string(s), "allocatable"):
				o.Available -= amount(u.Memory)
			case s == eviction.PIDAvailable:
				o.Available -= amount(u.Processes)
			default:
				for _, c := range u.Containers {
					o.Available -= int64(c.Layer.Bytes)
				}
			}
		}
		for image, n := range g.images {
			if !strings.HasSuffix(string(s), "fs.available") {
				break
			}
			if there[image] {
				o.Available -= n
			}
		}
		out[s] = o
	}
	return out
}

// Use is part of an eviction.Source.
func (g *gauges) Use(context.Context, eviction.Depth) (map[types.UID]eviction.Use, error) {
	running := g.running()
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[types.UID]eviction.Use{}
	for _, name := range slices.Sorted(maps.Keys(running)) {
		u, ok := g.uses[name]
		if !ok {
			continue
		}
		uid := running[name]
		sum := out[uid]
		sum.At = time.Now()
		sum.Memory, sum.Processes = plus(sum.Memory, u.Memory), plus(sum.Processes, u.Processes)
		sum.Containers = append(sum.Containers, u.Containers...)
		if u.Volumes != nil {
			sum.Volumes = u.Volumes
		}
		out[uid] = sum
	}
	return out, nil
}

// running are the containers that run, as pod/container, and pod/ for the pod itself.
func (g *gauges) running() map[string]types.UID {
	out := map[string]types.UID{}
	for _, p := range g.world.Runtime.Pods() {
		name := strings.TrimPrefix(p.Name, Namespace+"/")
		for _, c := range p.Containers {
			if c.Status.State == cri.ContainerState_CONTAINER_RUNNING {
				out[name+"/"+c.Status.Metadata.Name] = types.UID(p.UID)
				out[name+"/"] = types.UID(p.UID)
			}
		}
	}
	return out
}

// imagesThere are the names of the images that are on the node.
func (g *gauges) imagesThere() map[string]bool {
	out := map[string]bool{}
	list, err := g.world.Runtime.ListImages(context.Background(), &cri.ListImagesRequest{})
	if err != nil {
		g.world.T.Errorf("list images: %v", err)
	}
	for _, img := range list.GetImages() {
		for _, name := range img.RepoTags {
			out[strings.TrimPrefix(name, "docker.io/library/")] = true
		}
	}
	return out
}

func amount(n *uint64) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func plus(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	sum := *a + *b
	return &sum
}

// leaves sets how much is available on the node, without the usage of pods: SIGNAL=AMOUNT, or
// SIGNAL=? for a signal that cannot be measured.
func (r *Run) leaves(args []string) error {
	r.gauges.mu.Lock()
	defer r.gauges.mu.Unlock()
	for _, a := range args {
		signal, text, _ := strings.Cut(a, "=")
		s := eviction.Signal(signal)
		if r.gauges.blind[s] = text == "?"; r.gauges.blind[s] {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("left of %s: %w", signal, err)
		}
		r.gauges.left[s] = q.Value()
	}
	return nil
}

// use sets the usage of a container while it runs, or of a volume of its pod.
func (r *Run) use(args []string) error {
	pod, container := args[0], args[1]
	u, volumes := eviction.Use{}, map[string]eviction.VolumeUse{}
	c := eviction.ContainerUse{Name: container, Logs: &eviction.Space{}, Layer: &eviction.Space{}}
	for _, a := range args[2:] {
		what, text, _ := strings.Cut(a, "=")
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("use of %s: %w", what, err)
		}
		n := uint64(q.Value())
		switch what {
		case "memory":
			u.Memory, c.Memory = &n, &n
		case "processes":
			u.Processes = &n
		case "logs":
			c.Logs.Bytes = n
		case "layer":
			c.Layer.Bytes = n
		default:
			volumes[what] = eviction.VolumeUse{Space: eviction.Space{Bytes: n}, Local: true}
		}
	}
	u.Containers = []eviction.ContainerUse{c}
	if len(volumes) > 0 {
		u.Volumes = volumes
	}
	r.gauges.mu.Lock()
	defer r.gauges.mu.Unlock()
	r.gauges.uses[pod+"/"+container] = u
	return nil
}

// bulk adds an image that no container uses, and that uses space on the disks.
func (r *Run) bulk(args []string) error {
	q, err := resource.ParseQuantity(args[1])
	if err != nil {
		return err
	}
	r.Runtime.AddImage(fakecri.Image{Name: args[0], Size: uint64(q.Value())})
	r.gauges.mu.Lock()
	defer r.gauges.mu.Unlock()
	r.gauges.images[args[0]] = q.Value()
	return nil
}

// pressures shows the pressure conditions and the taints of the node, and the warnings about it.
func (r *Run) pressures([]string) (string, error) {
	n := r.Server.Node(Node)
	var b strings.Builder
	for _, c := range n.Status.Conditions {
		if c.Status == "True" && c.Type != "Ready" {
			fmt.Fprintf(&b, "%s %s\n", c.Type, c.Reason)
		}
	}
	for _, taint := range n.Spec.Taints {
		fmt.Fprintf(&b, "taint %s\n", taint.Key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.node {
		fmt.Fprintf(&b, "%s %s: %s\n", e.kind, e.reason, e.message)
	}
	r.node = nil
	if b.Len() == 0 {
		return "none\n", nil
	}
	return b.String(), nil
}
