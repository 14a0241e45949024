package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/clock"
)

const (
	// handshakePause is the time between two attempts to reach a runtime that is not running.
	handshakePause = 500 * time.Millisecond
	// handshakeCall bounds one attempt, so that a runtime that accepts connections but hangs is
	// detected and logged.
	handshakeCall = 10 * time.Second

	configTries = 3
	configPause = 2 * time.Second
)

// Identity holds the facts about a runtime that do not change while it runs.
type Identity struct {
	Name       string // containerd
	Version    string // v2.4.2
	APIVersion string // v1
	// CgroupDriver is systemd or cgroupfs, empty if the runtime does not report it.
	CgroupDriver string
	// LacksRuntimeConfig is set for a runtime without RuntimeConfig, a call that a later release of
	// the agent will require.
	LacksRuntimeConfig bool
}

// Handshake waits until the runtime and its image service respond, each for at most the request
// timeout, and returns the runtime's identity. A wait is logged when it begins and when it ends. An
// error other than the end of ctx means that the runtime cannot be used.
func (c *Client) Handshake(ctx context.Context) (Identity, error) {
	var v *runtimeapi.VersionResponse
	err := c.await(ctx, "container runtime", "RuntimeService", c.endpoint, func(ctx context.Context) (err error) {
		v, err = c.Version(ctx, &runtimeapi.VersionRequest{Version: "0.1.0"})
		return err
	})
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Name: v.RuntimeName, Version: v.RuntimeVersion, APIVersion: v.RuntimeApiVersion}
	if id.APIVersion != APIVersion {
		return id, fmt.Errorf("use container runtime %s %s: it speaks version %q of the runtime interface, want %q",
			id.Name,
			id.Version, id.APIVersion, APIVersion)
	}
	err = c.await(ctx, "image service", "ImageService", c.imageEndpoint, func(ctx context.Context) error {
		_, err := c.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		return err
	})
	if err != nil {
		return id, err
	}
	id.CgroupDriver, id.LacksRuntimeConfig, err = c.cgroupDriver(ctx)
	return id, err
}

// Version returns the name and versions of the runtime.
func (c *Client) Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return call(ctx, c.timeout, c.runtime.Version, req, "read runtime version", "")
}

// await repeats a call until it succeeds, for at most the request timeout.
func (c *Client) await(ctx context.Context, what, service string, at endpoint, do func(context.Context) error) error {
	start, logged := time.Now(), false
	for {
		try, cancel := context.WithTimeout(ctx, min(handshakeCall, c.timeout))
		err := do(try)
		cancel()
		if err == nil {
			if logged {
				c.log.Info("connected to CRI service", "service", what, at.setting, at.path,
					"waited", time.Since(start).Round(time.Millisecond))
			}
			return nil
		}
		if IsUnimplemented(err) {
			return fmt.Errorf("use %s: it does not serve runtime.%s.%s: %w", what, APIVersion, service, err)
		}
		if ctx.Err() == nil && !logged {
			c.log.Warn("waiting for CRI service", "service", what, at.setting, at.path, "timeout", c.timeout,
				"err", err)
			logged = true
		}
		if time.Since(start) >= c.timeout {
			return fmt.Errorf("wait for %s at %s (%s): no answer within %v: %w", what, at.path, at.setting, c.timeout,
				err)
		}
		if !clock.Sleep(ctx, handshakePause) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}

// cgroupDriver returns the runtime's cgroup driver, and whether the runtime lacks the call. A
// runtime that is still starting may fail at first.
func (c *Client) cgroupDriver(ctx context.Context) (driver string, lacks bool, err error) {
	for try := 1; ; try++ {
		resp, err := c.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		switch {
		case IsUnimplemented(err):
			return "", true, nil
		case err == nil && resp.GetLinux() == nil:
			return "", false, nil
		case err == nil && resp.Linux.CgroupDriver == runtimeapi.CgroupDriver_SYSTEMD:
			return "systemd", false, nil
		case err == nil && resp.Linux.CgroupDriver == runtimeapi.CgroupDriver_CGROUPFS:
			return "cgroupfs", false, nil
		case err == nil:
			return "", false, fmt.Errorf("read runtime configuration: unknown cgroup driver %v",
				resp.Linux.CgroupDriver)
		case try == configTries || !clock.Sleep(ctx, configPause):
			return "", false, err
		}
	}
}

// RuntimeConfig returns the configuration that agent and runtime must agree on.
func (c *Client) RuntimeConfig(
	ctx context.Context, req *runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, c.timeout, c.runtime.RuntimeConfig, req, "read runtime configuration", "")
}

// UpdateRuntimeConfig sends the pod CIDR to the runtime.
func (c *Client) UpdateRuntimeConfig(
	ctx context.Context, req *runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return call(ctx, c.timeout, c.runtime.UpdateRuntimeConfig, req, "update runtime configuration", "")
}
