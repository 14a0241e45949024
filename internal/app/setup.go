package app

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/node/apiclient"
)

const (
	// EventSetupFailed is the reason of the event about an agent that cannot start.
	EventSetupFailed = "KubeletSetupFailed"
	// lastWords is how long an agent that cannot start tries to say so.
	lastWords = 5 * time.Second
)

// tellSetupFailed tells the cluster why the agent ends before it has begun, if
// there is a way.
func (a *agent) tellSetupFailed(ctx context.Context, why error) {
	if a.cfg.Standalone() {
		return
	}
	if a.api == nil && !a.cfg.Kubelet.RotateCertificates && a.cfg.Flags.BootstrapKubeconfig == "" {
		if err := a.buildAPI(ctx); err != nil {
			return // nobody to tell; the log has the reason
		}
	}
	if a.api == nil {
		return // it has no certificate to speak with
	}
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	event := apiclient.NodeEvent(a.cfg.NodeName, v1.EventTypeWarning, EventSetupFailed, why.Error(), time.Now())
	if err := a.api.Tell(ctx, event); err != nil {
		a.log.Warn("cannot tell the cluster that the start failed", "err", err)
	}
}

// bootTime is when the machine was started; the zero time if that cannot be had.
func bootTime() time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}
