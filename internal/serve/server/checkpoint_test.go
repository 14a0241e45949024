package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/serve/server"
	"keelson/test/kit/parity"
)

// fakeCheckpoints can write a checkpoint of any container but the broken one.
type fakeCheckpoints struct{}

func (fakeCheckpoints) Checkpoint(
	_ context.Context, p *v1.Pod, container string, timeout time.Duration,
) (string, error) {
	if container == "broken" {
		return "", errors.New("method CheckpointContainer not implemented")
	}
	return "/checkpoints/" + p.Namespace + "/" + p.Name + "/" + container + "/" + timeout.String(), nil
}

func TestCheckpoint(t *testing.T) {
	parity.Proves(t, "RT-53", "SRV-31")
	parity.ProvesPart(t, 2, "RT-52")
	withAll := webPod()
	withAll.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	withAll.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"},
	}}
	r := newRig(t, func(p *parts) { p.server.Pods = fakePods{withAll} })
	for path, want := range map[string]answer{
		"/checkpoint/default/web/main": {
			code: 200,
			text: `{"items":["/checkpoints/default/web/main/0s"]}` + "\n",
		},
		"/checkpoint/default/web/setup": {
			code: 200,
			text: `{"items":["/checkpoints/default/web/setup/0s"]}` + "\n",
		},
		"/checkpoint/default/web/debug?timeout=7": {
			code: 200,
			text: `{"items":["/checkpoints/default/web/debug/7s"]}` + "\n",
		},
		"/checkpoint/default/web/main?timeout=soon": {
			code: 404,
			text: "cannot parse value of timeout parameter",
		},
		"/checkpoint/default/web/main?timeout=-1": {
			code: 404,
			text: "cannot parse value of timeout parameter",
		},
		"/checkpoint/default/web/main?timeout=99999999999": {
			code: 404,
			text: "cannot parse value of timeout parameter",
		},
		"/checkpoint/default/web/main?timeout=": {code: 404, text: "cannot parse value of timeout parameter"},
		"/checkpoint/default/other/main":        {code: 404, text: "pod does not exist"},
		"/checkpoint/default/web/other":         {code: 404, text: "container other does not exist"},
		"/checkpoint/default/web/broken": {
			code: 500,
			text: "checkpointing of default/web/broken failed (method CheckpointContainer not implemented)",
		},
	} {
		if got := r.as("may-checkpoint", "POST", path); got.code != want.code || got.text != want.text {
			t.Errorf("%s: %d %q, want %d %q", path, got.code, got.text, want.code, want.text)
		}
	}
	got := r.as("may-checkpoint", "POST", "/checkpoint/default/web/main?timeout=7&timeout=8")
	if !strings.HasSuffix(got.text, "/web/main/8s\"]}\n") {
		t.Errorf("of two timeouts: %q, want the last", got.text)
	}
	if got := r.as("admin", "GET", "/checkpoint/default/web/main"); got.code != 405 {
		t.Errorf("GET: %d %q, want 405", got.code, got.text)
	}
	// A checkpoint fills the disk: taking one needs authorization.
	if got := r.ask(http.DefaultClient, "POST",
		"http://"+r.addr[server.ReadOnly]+"/checkpoint/default/web/main"); got.code != 404 && got.code != 405 {
		t.Errorf("on the read-only port: %d %q, want that it is not there", got.code, got.text)
	}
	off := newRig(t, func(p *parts) { p.server.Checkpoints = nil })
	if got := off.as("admin", "POST", "/checkpoint/default/web/main"); got.code != 404 ||
		!strings.Contains(got.text, "404") {
		t.Errorf("switched off: %d %q, want 404", got.code, got.text)
	}
}
