package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

const (
	maxAnswer = 1 << 20
	maxStderr = 4 << 10 // prefix that errors show
)

// run executes the plugin once. Its process group is killed at the timeout, so that child processes
// of a script do not outlive it. If a plugin exits successfully but leaves children that hold its
// output open, its response is used.
func (p *plugin) run(
	ctx context.Context, req credentialv1.CredentialProviderRequest,
) (credentialv1.CredentialProviderResponse, error) {
	var resp credentialv1.CredentialProviderResponse
	req.APIVersion, req.Kind = p.cfg.APIVersion, "CredentialProviderRequest"
	in, err := json.Marshal(req)
	if err != nil {
		return resp, fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, p.cfg.Args...)
	cmd.Env = os.Environ()
	for _, e := range p.cfg.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	stdout, stderr := &bounded{max: maxAnswer}, &bounded{max: maxStderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && stdout.over:
		err = fmt.Errorf("answer is larger than %d bytes", maxAnswer)
	case err == nil:
		err = decode(stdout.kept, p.cfg.APIVersion, &resp)
	}
	if err == nil {
		return resp, nil
	}
	if output := strings.TrimSpace(string(stderr.kept)); output != "" {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return resp, fmt.Errorf("run credential provider %s for image %s: %w", p.cfg.Name, req.Image, err)
}

// decode decodes a response. Errors do not quote it, since it is secret.
func decode(raw []byte, apiVersion string, resp *credentialv1.CredentialProviderResponse) error {
	if err := json.Unmarshal(raw, resp); err != nil {
		return errors.New("answer is not a CredentialProviderResponse in JSON")
	}
	if resp.Kind != "CredentialProviderResponse" || resp.APIVersion != apiVersion {
		return fmt.Errorf("answer is a %q of %q, want a CredentialProviderResponse of %q", resp.Kind, resp.APIVersion,
			apiVersion)
	}
	switch resp.CacheKeyType {
	case credentialv1.ImagePluginCacheKeyType,
		credentialv1.RegistryPluginCacheKeyType,
		credentialv1.GlobalPluginCacheKeyType:
		return nil
	}
	return fmt.Errorf("answer has cacheKeyType %q, want Image, Registry or Global", resp.CacheKeyType)
}

// bounded keeps a prefix of what is written to it.
type bounded struct {
	kept []byte
	max  int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.max - len(b.kept)
	b.over = b.over || len(p) > room
	b.kept = append(b.kept, p[:min(len(p), room)]...)
	return len(p), nil
}
