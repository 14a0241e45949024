package crisuite

import (
	"encoding/json"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testSandbox(t *testing.T, s *suite) {
	before := time.Now().UnixNano()
	p := s.runPod(t)
	get := func() *cri.PodSandboxStatus {
		t.Helper()
		res, err := s.rt.PodSandboxStatus(s.ctx(t), &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
		if err != nil {
			t.Fatalf("PodSandboxStatus: %v", err)
		}
		return res.Status
	}

	st := get()
	if st.Id != p.id || st.State != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("after run: id %s, state %s", st.Id, st.State)
	}
	if st.CreatedAt < before || st.CreatedAt > time.Now().UnixNano() {
		t.Errorf("created at %d, not during the call", st.CreatedAt)
	}
	if m := p.cfg.Metadata; st.Metadata.Name != m.Name || st.Metadata.Namespace != m.Namespace ||
		st.Metadata.Uid != m.Uid || st.Metadata.Attempt != 0 {
		t.Errorf("metadata %v, want %v", st.Metadata, m)
	}
	if !maps.Equal(st.Labels, p.cfg.Labels) || !maps.Equal(st.Annotations, p.cfg.Annotations) {
		t.Errorf("labels %q and annotations %q were altered", st.Labels, st.Annotations)
	}
	ip := st.GetNetwork().GetIp()
	if _, err := netip.ParseAddr(ip); s.HostNetwork == (err == nil) {
		t.Errorf("address %q with host network %v", ip, s.HostNetwork)
	}
	verbose, err := s.rt.PodSandboxStatus(s.ctx(t), &cri.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(verbose.Info["info"]), &info); err != nil || info.Pid <= 0 {
		t.Errorf("verbose info has pid %d, %v", info.Pid, err)
	}

	for range 2 {
		if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatalf("StopPodSandbox: %v", err)
		}
		if st := get(); st.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("after stop: %s", st.State)
		}
	}
	for range 2 {
		if _, err := s.rt.RemovePodSandbox(s.ctx(t), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Fatalf("RemovePodSandbox: %v", err)
		}
		_, err = s.rt.PodSandboxStatus(s.ctx(t), &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
		wantCode(t, "status of a removed sandbox", err, codes.NotFound)
	}
}

func testSandboxName(t *testing.T, s *suite) {
	p := s.runPod(t)
	_, err := s.rt.RunPodSandbox(s.ctx(t), &cri.RunPodSandboxRequest{Config: p.cfg})
	wantError(t, "a second sandbox of the same name and attempt", err)

	next := s.sandboxConfig(t)
	next.Metadata = &cri.PodSandboxMetadata{
		Name:      p.cfg.Metadata.Name,
		Namespace: p.cfg.Metadata.Namespace,
		Uid:       p.cfg.Metadata.Uid,
		Attempt:   1,
	}
	res, err := s.rt.RunPodSandbox(s.ctx(t), &cri.RunPodSandboxRequest{Config: next})
	if err != nil {
		t.Fatalf("a second attempt beside the first: %v", err)
	}
	if _, err := s.rt.RemovePodSandbox(s.ctx(t),
		&cri.RemovePodSandboxRequest{PodSandboxId: res.PodSandboxId}); err != nil {
		t.Fatalf("removing a ready sandbox: %v", err)
	}

	_, err = s.rt.RunPodSandbox(s.ctx(t), &cri.RunPodSandboxRequest{
		Config:         s.sandboxConfig(t),
		RuntimeHandler: "no-such-handler",
	})
	wantError(t, "an unknown runtime handler", err)
}

func testSandboxEnds(t *testing.T, s *suite) {
	p := s.runPod(t)
	id := s.start(t, p, s.script(t, p, "main", stubborn))
	if _, err := s.rt.StopPodSandbox(s.ctx(t), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	st := s.exited(t, id)
	if st.ExitCode != 137 {
		t.Errorf("exit code %d, want 137: a sandbox gives no grace", st.ExitCode)
	}
	_, err := s.rt.CreateContainer(s.ctx(t), &cri.CreateContainerRequest{
		PodSandboxId:  p.id,
		Config:        s.script(t, p, "late", serve),
		SandboxConfig: p.cfg,
	})
	wantError(t, "creating a container in a stopped sandbox", err)
	if _, err := s.rt.RemovePodSandbox(s.ctx(t), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	_, err = s.rt.ContainerStatus(s.ctx(t), &cri.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "status of a container whose sandbox is removed", err, codes.NotFound)
}

func testParallel(t *testing.T, s *suite) {
	const n = 5
	pods := make([]pod, n)
	for i := range pods {
		pods[i].cfg = s.sandboxConfig(t)
	}
	ctx := s.ctx(t)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range pods {
		wg.Go(func() {
			res, err := s.rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pods[i].cfg})
			if errs[i] = err; err == nil {
				pods[i].id = res.PodSandboxId
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, p := range pods {
		if errs[i] != nil {
			t.Errorf("RunPodSandbox: %v", errs[i])
			continue
		}
		res, err := s.rt.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
		if err != nil {
			t.Errorf("PodSandboxStatus: %v", err)
		}
		if ip := res.GetStatus().GetNetwork().GetIp(); ip != "" {
			if seen[ip] {
				t.Errorf("address %s is given twice", ip)
			}
			seen[ip] = true
		}
		if _, err := s.rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("RemovePodSandbox: %v", err)
		}
	}
}
