package stats

import (
	"testing"
	"time"

	"keelson/test/kit/parity"
)

// TestNodeMemoryEqualsSummary checks that eviction uses the same measurements as the summary.
func TestNodeMemoryEqualsSummary(t *testing.T) {
	parity.ProvesPart(t, 2, "EVIC-03")
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		g.use("/kubepods", time.Second, 200*mebi, 1<<30)
		c := New(g.cfg)
		s, err := c.Summary(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.NodeMemory()
		if err != nil || m.Capacity != hostMemory || m.WorkingSet != *s.Node.Memory.WorkingSetBytes ||
			m.Available() != *s.Node.Memory.AvailableBytes {
			t.Errorf("node %+v, %v; summary %s", m, err, show(s.Node.Memory))
		}
		all := s.Node.SystemContainers[len(s.Node.SystemContainers)-1]
		p, limited, err := c.PodsMemory()
		if err != nil || !limited || all.Name != "pods" || p.Capacity != 1<<30 ||
			p.WorkingSet != *all.Memory.WorkingSetBytes || p.Available() != *all.Memory.AvailableBytes {
			t.Errorf("all pods %+v, %v, %v; summary %s", p, limited, err, show(all.Memory))
		}
		g.use("/kubepods", time.Second, 300*mebi, 1<<30)
		if now, _, _ := c.PodsMemory(); now.WorkingSet != p.WorkingSet+100*mebi {
			t.Errorf("all pods %+v, which is old", now)
		}
		g.use("/kubepods", time.Second, 300*mebi, 0)
		if p, limited, err := c.PodsMemory(); err != nil || limited {
			t.Errorf("all pods %+v, %v although they have no limit", p, err)
		}
	})
}

// TestFreshMakesNewReading checks that the pod to evict is chosen by current measurements.
func TestFreshMakesNewReading(t *testing.T) {
	g := newGround(t, true)
	c := New(g.cfg)
	before := *c.Fresh(t.Context()).Pods[0].Memory.WorkingSetBytes
	g.use(c.cfg.Tree.Parent(g.pod().Spec), time.Second, 400*mebi, 0)
	if now := *c.Fresh(t.Context()).Pods[0].Memory.WorkingSetBytes; now == before {
		t.Errorf("%d bytes as before", now)
	}
}
