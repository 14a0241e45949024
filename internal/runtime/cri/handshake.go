package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// handshakePause is the time between two tries to reach a runtime that is
	// not there. The socket of a runtime that starts now is found soon after.
	handshakePause = 500 * time.Millisecond
	// handshakeCall bounds one try, so that a runtime that accepts and then
	// hangs is noticed and said.
	handshakeCall = 10 * time.Second

	configTries = 3
	configPause = 2 * time.Second
)

// Identity is what a runtime says about itself; it does not change while it runs.
type Identity struct {
	Name       string // containerd
	Version    string // v2.4.2
	APIVersion string // v1
	// CgroupDriver is systemd or cgroupfs; empty when the runtime does not tell.
	CgroupDriver string
	// Ageing says that the runtime lacks a call that a coming release of the agent
	// will not do without.
	Ageing bool
}

// Handshake waits until the runtime and its image service answer, each for as long as a request may take,
// and asks the runtime who it is. A wait is logged once when it begins and once when it
// ends. An error other than the end of ctx means that this runtime cannot be
// used.
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
		return id, fmt.Errorf("use container runtime %s %s: it speaks version %q of the runtime interface, want %q", id.Name, id.Version, id.APIVersion, APIVersion)
	}
	err = c.await(ctx, "image service", "ImageService", c.imageEndpoint, func(ctx context.Context) error {
		_, err := c.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		return err
	})
	if err != nil {
		return id, err
	}
	id.CgroupDriver, id.Ageing, err = c.cgroupDriver(ctx)
	return id, err
}

// Version asks the runtime for its name and versions.
func (c *Client) Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return call(ctx, c.timeout, c.runtime.Version, req, "read runtime version", "")
}

// await repeats a call until it succeeds, for as long as a request may take.
func (c *Client) await(ctx context.Context, what, service string, at endpoint, do func(context.Context) error) error {
	start, said := time.Now(), false
	for {
		try, cancel := context.WithTimeout(ctx, min(handshakeCall, c.timeout))
		err := do(try)
		cancel()
		if err == nil {
			if said {
				c.log.Info(what+" is there", at.setting, at.path, "waited", time.Since(start).Round(time.Millisecond))
			}
			return nil
		}
		if IsUnimplemented(err) {
			return fmt.Errorf("use %s: it does not serve runtime.%s.%s: %w", what, APIVersion, service, err)
		}
		if ctx.Err() == nil && !said {
			c.log.Warn("waiting for the "+what, at.setting, at.path, "atMost", c.timeout, "err", err)
			said = true
		}
		if time.Since(start) >= c.timeout {
			return fmt.Errorf("wait for %s at %s (%s): no answer within %v: %w", what, at.path, at.setting, c.timeout, err)
		}
		if !sleep(ctx, handshakePause) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}

// cgroupDriver asks which of the two writers of cgroups the runtime uses, and
// reports whether it lacks the call. A runtime that is still starting may fail the
// first time.
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
			return "", false, fmt.Errorf("read runtime configuration: unknown cgroup driver %v", resp.Linux.CgroupDriver)
		case try == configTries || !sleep(ctx, configPause):
			return "", false, err
		}
	}
}

// RuntimeConfig asks for the configuration that agent and runtime must share.
func (c *Client) RuntimeConfig(ctx context.Context, req *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, c.timeout, c.runtime.RuntimeConfig, req, "read runtime configuration", "")
}

// UpdateRuntimeConfig tells the runtime the range of pod addresses.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, req *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return call(ctx, c.timeout, c.runtime.UpdateRuntimeConfig, req, "update runtime configuration", "")
}

// sleep waits for d; it reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
