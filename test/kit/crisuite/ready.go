package crisuite

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testReady(t *testing.T, s *suite) {
	v, err := s.rt.Version(s.ctx(t), &cri.VersionRequest{Version: "0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	if v.RuntimeName == "" || v.RuntimeVersion == "" || v.RuntimeApiVersion != "v1" {
		t.Errorf("Version: %v", v)
	}
	st, err := s.rt.Status(s.ctx(t), &cri.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{cri.RuntimeReady, cri.NetworkReady} {
		i := slices.IndexFunc(st.Status.Conditions, func(c *cri.RuntimeCondition) bool { return c.Type == want })
		switch {
		case i < 0:
			t.Errorf("there is no condition %s", want)
		case !st.Status.Conditions[i].Status && (want != cri.NetworkReady || !s.HostNetwork):
			t.Errorf("%s is false: %s", want, st.Status.Conditions[i].Message)
		}
	}
	if len(st.Info) > 0 {
		t.Error("Status tells more than it was asked for")
	}
	rc, err := s.rt.RuntimeConfig(s.ctx(t), &cri.RuntimeConfigRequest{})
	if s.Old {
		wantCode(t, "RuntimeConfig", err, codes.Unimplemented)
	} else if err != nil || rc.GetLinux() == nil {
		t.Errorf("RuntimeConfig: %v, %v", rc, err)
	}
}
