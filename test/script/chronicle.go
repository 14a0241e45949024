package script

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/fakecri"
)

// chronicle is what can be seen of a node from outside, moment by moment: what ran, and
// what was shown of it.
type chronicle struct {
	mu        sync.Mutex
	moments   []fakecri.Moment
	sightings []sighting
	others    map[string]bool // resource versions that another client than the agent wrote
}

// sighting is a pod as the API server had it from a moment on.
type sighting struct {
	at   time.Time
	pod  *corev1.Pod
	gone bool
}

func (c *chronicle) note(m fakecri.Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moments = append(c.moments, m)
}

// follow records what is shown of pods, until it is stopped. The watch is past
// everything that makes the agent's way to the server a hard one.
func (w *World) follow(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := w.API.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() {
		for e := range watch.ResultChan() {
			if p, is := e.Object.(*corev1.Pod); is {
				w.chronicle.hear(sighting{time.Now(), p, e.Type == "DELETED"})
			}
		}
	})
	return func() {
		cancel()
		following.Wait()
	}
}

func (c *chronicle) hear(s sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sightings = append(c.sightings, s)
}

// uid is the one that the runtime knows the pod by: of the manifest, where there is one.
func uid(p *corev1.Pod) string {
	if of, is := p.Annotations[corev1.MirrorPodAnnotationKey]; is {
		return of
	}
	return string(p.UID)
}

// specs are the pods that were ever seen, by the runtime's UIDs.
func (c *chronicle) specs() map[string]*corev1.Pod {
	all := map[string]*corev1.Pod{}
	for _, s := range c.sightings {
		all[uid(s.pod)] = s.pod
	}
	return all
}

// lives are the moments of each container, by UID and name.
func (c *chronicle) lives() map[[2]string][]fakecri.Moment {
	all := map[[2]string][]fakecri.Moment{}
	for _, m := range c.moments {
		key := [2]string{m.UID, m.Container}
		all[key] = append(all[key], m)
	}
	return all
}

// blame notes that another client than the agent wrote this version of a pod.
func (c *chronicle) blame(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others == nil {
		c.others = map[string]bool{}
	}
	c.others[p.ResourceVersion] = true
}

// tales are the sightings of each object, by its own UID, but for those that another
// client wrote. A pod that another client has declared to be over says from then on
// that it is, whatever still runs of it: the rest of its tale is not the agent's either.
func (c *chronicle) tales() map[string][]sighting {
	all, declared := map[string][]sighting{}, map[types.UID]bool{}
	for _, s := range c.sightings {
		switch {
		case c.others[s.pod.ResourceVersion]:
			_, mirror := s.pod.Annotations[corev1.MirrorPodAnnotationKey]
			declared[s.pod.UID] = declared[s.pod.UID] || ended(s.pod) && !mirror
		case !declared[s.pod.UID]:
			all[string(s.pod.UID)] = append(all[string(s.pod.UID)], s)
		}
	}
	return all
}

// reported is what was shown of pods, a line for each sighting.
func (c *chronicle) reported() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, s := range c.sightings {
		fmt.Fprintf(&b, "%7s %s: %s", s.at.Sub(c.sightings[0].at).Round(time.Millisecond), s.pod.Name, brief(s.pod))
		for _, st := range statuses(s.pod) {
			_, id, _ := strings.Cut(st.ContainerID, "://")
			fmt.Fprintf(&b, " [%s#%d %.4s]", st.Name, st.RestartCount, id)
		}
		if s.gone {
			b.WriteString(" gone")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func sorted[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
