package dra

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"keelson/test/kit/dradriver"
)

// stackCounter is a log handler that counts the stacks of panics in this file.
type stackCounter struct {
	slog.Handler
	stacks *int
}

func (h stackCounter) Enabled(context.Context, slog.Level) bool { return true }

func (h stackCounter) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "stack" && strings.Contains(a.Value.String(), "panic_test.go") {
			*h.stacks++
		}
		return true
	})
	return nil
}

// The agent panics while it processes the device health that one driver reports. The health of that driver is watched
// again after one second, and then after two. Reports of other drivers are processed meanwhile.
func TestPanicDuringHealthUpdate(t *testing.T) {
	play(t, func(s *stage) {
		const other = "nic.example.com"
		left, stacks := 2, 0
		s.health.cfg.OnChange = func(driver string) {
			if driver == driverName && left > 0 {
				left--
				panic("at the health of devices")
			}
			s.HealthChanged(driver)
		}
		s.health.cfg.Log = slog.New(stackCounter{slog.DiscardHandler, &stacks})
		sick, well := s.driver(driverName, dradriver.V1, dradriver.Health), s.driver(other, dradriver.V1,
			dradriver.Health)
		is := func(driver string, want v1.ResourceHealthStatus) {
			t.Helper()
			synctest.Wait()
			if got, _ := s.health.Of(driver, "pool", "dev-0"); got != want {
				t.Errorf("a device of %s is %s, want %s", driver, got, want)
			}
		}
		synctest.Wait()
		sick.Say(reported("dev-0", healthapi.HealthStatus_HEALTHY, 3600, ""))
		synctest.Wait()
		if stacks != 1 {
			t.Errorf("%d stacks in the log, want 1", stacks)
		}
		well.Say(reported("dev-0", healthapi.HealthStatus_UNHEALTHY, 3600, ""))
		is(other, v1.ResourceHealthStatusUnhealthy)
		after(time.Second) // it is watched again
		sick.Say(reported("dev-0", healthapi.HealthStatus_UNHEALTHY, 3600, ""))
		synctest.Wait()
		if stacks != 2 {
			t.Errorf("%d stacks in the log, want 2", stacks)
		}
		after(2 * time.Second)
		sick.Say(reported("dev-0", healthapi.HealthStatus_HEALTHY, 1, ""))
		is(driverName, v1.ResourceHealthStatusHealthy)
		left = 1
		after(time.Second) // the panic occurs in the expiry timer
		is(driverName, v1.ResourceHealthStatusUnknown)
		if left != 0 || stacks != 3 {
			t.Errorf("%d panics have yet to come; %d stacks in the log, want 3", left, stacks)
		}
	})
}
