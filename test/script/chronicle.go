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

// chronicle records what can be observed of a node: the starts and ends of containers, and the
// pods at the API server.
type chronicle struct {
	mu        sync.Mutex
	moments   []fakecri.Moment
	sightings []sighting
	others    map[string]bool // resource versions that another client than the agent wrote
}

// sighting is a version of a pod at the API server, with the time from which on it was there.
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

// follow records all versions of pods at the API server, until it is stopped. The watch does
// not go through the proxy that makes the agent's requests fail.
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

// uid is the UID of the pod in the runtime: that of the manifest for a mirror pod.
func uid(p *corev1.Pod) string {
	if of, is := p.Annotations[corev1.MirrorPodAnnotationKey]; is {
		return of
	}
	return string(p.UID)
}

// specs are all pods that were seen, in their last version, by their UIDs in the runtime.
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

// blame records that another client than the agent wrote this version of a pod.
func (c *chronicle) blame(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others == nil {
		c.others = map[string]bool{}
	}
	c.others[p.ResourceVersion] = true
}

// tales are the sightings of each object, by its own UID, without the versions that another
// client wrote. If another client has written a terminal phase, the pod keeps it although its
// containers may still run: later versions of this pod are left out, too.
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

// reported lists the recorded versions of pods, a line for each sighting.
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
