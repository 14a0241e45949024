package differ

import (
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/fakecri"
)

// TestServerTellsSidesApart has the same pod on both sides. Its probes fail on one side only.
func TestServerTellsSidesApart(t *testing.T) {
	lives := &cast{of: map[string]*Life{"pod": {Name: "pod"}}}
	var sides [2]*side
	var at [2]string
	for i, cidr := range []string{"127.201.0.0/16", "127.202.0.0/16"} {
		s := &side{index: i, lives: lives, clock: newClock(), fake: fakecri.New(fakecri.Options{PodCIDR: cidr})}
		t.Cleanup(s.fake.Close)
		s.record = newRecord(s)
		res, err := s.fake.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: "pod", Namespace: "side", Uid: "1"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.fake.PodSandboxStatus(t.Context(),
			&cri.PodSandboxStatusRequest{PodSandboxId: res.GetPodSandboxId()})
		if err != nil {
			t.Fatal(err)
		}
		sides[i], at[i] = s, st.GetStatus().GetNetwork().GetIp()
	}
	srv, err := serve(t.Context(), sides)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.close(); err != nil {
			t.Error(err)
		}
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main",
			LivenessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(httpPort)}},
			},
			StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: grpcPort}}},
		}}},
	}
	srv.bind(pod)
	web := pod.Spec.Containers[0].LivenessProbe.HTTPGet.Port.String()
	rpc := strconv.Itoa(int(pod.Spec.Containers[0].StartupProbe.GRPC.Port))
	if web == "8001" || rpc == "8002" {
		t.Fatalf("ports are %s and %s: as drawn", web, rpc)
	}
	sides[1].record.track("pod").setSick("main/readiness", true)
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		for path, want := range map[string]int{
			"/main/readiness":    want,
			"/main/liveness":     http.StatusOK,
			"/hook/1":            500,
			"/main/liveness?own": 400,
		} {
			if got := get(t, "http://"+at[i]+":"+web+path); got != want {
				t.Errorf("side %d: %s is answered with %d, want %d", i, path, got, want)
			}
		}
		conn, err := grpc.NewClient(at[i]+":"+rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		})
		res, err := health.NewHealthClient(conn).Check(t.Context(),
			&health.HealthCheckRequest{Service: "main/readiness"})
		if err != nil {
			t.Fatal(err)
		}
		serving := res.GetStatus() == health.HealthCheckResponse_SERVING
		if serving != (want == http.StatusOK) {
			t.Errorf("side %d: the gRPC probe is answered with %s", i, res.GetStatus())
		}
	}
}

func get(t *testing.T, url string) int {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}
