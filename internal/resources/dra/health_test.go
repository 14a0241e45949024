package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"keelson/test/kit/dradriver"
	"keelson/test/kit/parity"
	"keelson/test/kit/renames"
)

func reported(name string, h healthapi.HealthStatus, timeout int64, message string) *healthapi.DeviceHealth {
	return &healthapi.DeviceHealth{
		Device:                    &healthapi.DeviceIdentifier{PoolName: "pool", DeviceName: name},
		Health:                    h,
		HealthCheckTimeoutSeconds: timeout,
		Message:                   message,
	}
}

// newsOf returns the number of calls of OnChange for a pod.
func (s *stage) newsOf(p *v1.Pod) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news[p.UID]
}

func TestDeviceHealth(t *testing.T) {
	parity.Proves(t, "PLUG-31")
	parity.ProvesPart(t, 2, "RES-63")
	parity.ProvesPart(t, 2, "LIFE-30")
	parity.ProvesPart(t, 5, "RT-57")
	play(t, func(s *stage) {
		files := renames.Watch(t, s.dir)
		p := using("p", "c")
		s.claim("c", []string{driverName}, p)
		d := s.driver(driverName, dradriver.V1, dradriver.Health)
		s.wants(p)
		is := func(health v1.ResourceHealthStatus, message string) {
			t.Helper()
			synctest.Wait()
			got := s.Health(p)["main"]
			if len(got) != 1 || got[0].Name != "claim:c" || len(got[0].Resources) != 1 {
				t.Fatalf("%+v", got)
			}
			r := got[0].Resources[0]
			logged := ""
			if r.Message != nil {
				logged = *r.Message
			}
			if string(r.ResourceID) != driverName+"/claim=uid-of-c" || r.Health != health || logged != message {
				t.Errorf("%+v, %q; want %s, %q", r, logged, health, message)
			}
		}
		is(v1.ResourceHealthStatusUnknown, "")
		before := s.newsOf(p)
		d.Say(reported("dev-0", healthapi.HealthStatus_HEALTHY, 0, ""))
		is(v1.ResourceHealthStatusHealthy, "")
		if s.newsOf(p) != before+1 {
			t.Errorf("the pod was looked at %d times", s.newsOf(p)-before)
		}
		d.Say(reported("dev-0", healthapi.HealthStatus_HEALTHY, 0, ""))
		is(v1.ResourceHealthStatusHealthy, "")
		if s.newsOf(p) != before+1 {
			t.Error("no news, and the pod was looked at")
		}
		after(29 * time.Second)
		is(v1.ResourceHealthStatusHealthy, "")
		after(time.Second)
		is(v1.ResourceHealthStatusUnknown, "")
		if s.newsOf(p) != before+2 {
			t.Error("the pod was not woken when its device was not reported any more")
		}
		d.Say(reported("dev-0", healthapi.HealthStatus_UNHEALTHY, 300, strings.Repeat("x", 2000)))
		is(v1.ResourceHealthStatusUnhealthy, strings.Repeat("x", 1021)+"...")
		if renamed := files.Check(t); !slices.Contains(renamed, "dra_health_state") {
			t.Errorf("%q were renamed into place", renamed)
		}
		// The health is restored after a restart of the agent.
		s.kill()
		s.register(driverName, driverName)
		s.wants(p)
		is(v1.ResourceHealthStatusUnhealthy, strings.Repeat("x", 1021)+"...")
		content, err := os.ReadFile(s.dir + "/dra_health_state")
		var file map[string]struct{ Devices map[string]map[string]any }
		if err := errors.Join(err, json.Unmarshal(content, &file)); err != nil {
			t.Fatal(err)
		}
		dev := file[driverName].Devices["pool/dev-0"]
		if dev["PoolName"] != "pool" || dev["DeviceName"] != "dev-0" || dev["Health"] != "Unhealthy" ||
			dev["HealthCheckTimeout"] != float64(300*time.Second) || dev["LastUpdated"] == nil || len(dev) != 6 {
			t.Errorf("the file says %s", content)
		}
		// The health of a device that the driver does not report any more expires after its timeout.
		d.Say(reported("dev-1", healthapi.HealthStatus_HEALTHY, 0, ""))
		is(v1.ResourceHealthStatusUnhealthy, strings.Repeat("x", 1021)+"...")
		after(300 * time.Second)
		is(v1.ResourceHealthStatusUnknown, strings.Repeat("x", 1021)+"...")
		s.releases(p)
		if got := s.Health(p)["main"]; len(got) > 0 {
			t.Errorf("of a claim that is taken back: %+v", got)
		}
	})
}

// A driver that does not register again after a restart of the agent reports nothing. What it reported before expires
// all the same.
func TestHealthExpiresAfterRestart(t *testing.T) {
	play(t, func(s *stage) {
		p := using("p", "c")
		s.claim("c", []string{driverName}, p)
		d := s.driver(driverName, dradriver.V1, dradriver.Health)
		s.wants(p)
		d.Say(reported("dev-0", healthapi.HealthStatus_HEALTHY, 60, ""))
		synctest.Wait()
		after(20 * time.Second)
		s.kill()
		s.wants(p)
		before := s.newsOf(p)
		is := func(want v1.ResourceHealthStatus, news int) {
			t.Helper()
			synctest.Wait()
			if got := s.Health(p)["main"][0].Resources[0].Health; got != want {
				t.Errorf("the device is %s, want %s", got, want)
			}
			if got := s.newsOf(p) - before; got != news {
				t.Errorf("the pod was looked at %d times, want %d", got, news)
			}
		}
		is(v1.ResourceHealthStatusHealthy, 0)
		after(39 * time.Second)
		is(v1.ResourceHealthStatusHealthy, 0)
		after(time.Second)
		is(v1.ResourceHealthStatusUnknown, 1)
	})
}

// The number of devices that are kept for one driver is bounded, even if its reports contain ever new devices.
func TestHealthDeviceLimit(t *testing.T) {
	h := NewHealth(HealthConfig{
		Path:     t.TempDir() + "/" + HealthFile,
		OnChange: func(string) {},
		Log:      slog.New(slog.DiscardHandler),
	})
	defer func() {
		for _, timer := range h.expiryTimers {
			timer.Stop()
		}
	}()
	now := time.Now()
	list := func(prefix string, n int) (out []*healthapi.DeviceHealth) {
		for i := range n {
			out = append(out, reported(fmt.Sprint(prefix, i), healthapi.HealthStatus_HEALTHY, 1<<20, ""))
		}
		return out
	}
	h.update(driverName, list("a", maxDevices-1), now)
	h.update(driverName, list("b", 3), now)
	h.update(driverName, []*healthapi.DeviceHealth{reported("a0", healthapi.HealthStatus_UNHEALTHY, 0, "")}, now)
	if n := len(h.drivers[driverName].Devices); n != maxDevices {
		t.Errorf("%d devices are kept, want %d", n, maxDevices)
	}
	if is, _ := h.Of(driverName, "pool", "a0"); is != v1.ResourceHealthStatusUnhealthy {
		t.Errorf("what is known of one of them is %s", is)
	}
}

func TestHealthMessageIsTruncated(t *testing.T) {
	long := strings.Repeat("é", maxMessage)
	if got := truncated(long); !utf8.ValidString(got) || got != strings.Repeat("é", (maxMessage-3)/2)+"..." {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-8:])
	}
}

func TestHealthRateLimit(t *testing.T) {
	play(t, func(s *stage) {
		p := using("p", "c")
		s.claim("c", []string{driverName}, p)
		d := s.driver(driverName, dradriver.V1, dradriver.Health)
		s.wants(p)
		began := s.newsOf(p)
		const n = 1000
		for i := range n {
			d.Say(reported("dev-0", healthapi.HealthStatus(1+i%2), 0, ""))
			synctest.Wait()
		}
		if got := s.newsOf(p) - began; got > messageBurst+2 {
			t.Errorf("in no time the driver has had the pod looked at %d times", got)
		}
	})
}
