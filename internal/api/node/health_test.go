package node

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

func TestRuntimeHealth(t *testing.T) {
	parity.Proves(t, "RT-03")
	synctest.Test(t, func(t *testing.T) {
		r := run(t, newServer(), nil)
		defer r.stop()
		<-r.Registered()
		pass(time.Minute)
		before := r.runtime.asked.Load()
		pass(10 * time.Minute)
		if n := r.runtime.asked.Load() - before; n != 120 {
			t.Errorf("asked %d times in ten minutes, want once in 5 s", n)
		}
		ready := func(after time.Duration, want v1.ConditionStatus, message string) {
			t.Helper()
			pass(after)
			if c := readyOf(r.api.snapshot()); c.Status != want || c.Message != message {
				t.Errorf("Ready = %s %q, want %s %q", c.Status, c.Message, want, message)
			}
		}
		const well = "kubelet is posting ready status"
		r.runtime.unready.Store(true)
		const unready = "container runtime not ready: RuntimeReady=false reason:Starting message:shim is missing"
		ready(6*time.Second, v1.ConditionFalse, unready)
		// As upstream, the 30 s begin with the last response in which the runtime was ready.
		ready(18*time.Second, v1.ConditionFalse, unready)
		ready(18*time.Second, v1.ConditionFalse, "[container runtime is down, "+unready+"]")
		r.runtime.unready.Store(false)
		ready(6*time.Second, v1.ConditionTrue, well)
		r.runtime.noNetwork.Store(true)
		ready(
			6*time.Second,
			v1.ConditionFalse,
			"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not "+
				"initialized",
		)
		r.runtime.noNetwork.Store(false)
		ready(6*time.Second, v1.ConditionTrue, well)
		r.runtime.set(true)
		ready(24*time.Second, v1.ConditionTrue, well)
		ready(12*time.Second, v1.ConditionFalse, "container runtime is down")
		r.runtime.set(false)
		ready(6*time.Second, v1.ConditionTrue, well)
	})
}
