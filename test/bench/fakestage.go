package bench

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/fakeapi"
	"keelson/test/kit/fakecri"
	"keelson/test/rig"
)

// onFakes is the environment of figures that depend only on the kubelet.
const onFakes = "fake runtime, fake API"

// fakeStage is a kubelet with a fake runtime and a fake API server that answer at once. So the measured time is the
// kubelet's own.
type fakeStage struct {
	node    string
	runtime *fakecri.Runtime
	api     *fakeapi.Server
	proxy   *apiproxy.Proxy
	http    *httptest.Server
	client  kubernetes.Interface
	rig     *rig.Rig
	kubelet *rig.Kubelet
	watch   *podWatch
}

// fakeOptions are the settings that differ between scenes.
type fakeOptions struct {
	runtime fakecri.Options
	before  func(*fakecri.Runtime)
	edit    func(*kubeletconfig.KubeletConfiguration)
}

// onFakeStage makes a fakeStage for one kubelet, calls play, and removes it.
func (r *run) onFakeStage(
	ctx context.Context, c contender, o fakeOptions, play func(context.Context, *fakeStage) error,
) (err error) {
	s := &fakeStage{api: fakeapi.New()}
	if s.rig, err = rig.Open(ctx, rig.Config{Purpose: "bench", Parts: r.cfg.Parts, Log: r.cfg.Log}); err != nil {
		return err
	}
	defer closing(&err, s.rig.Close)
	s.node = s.rig.Name
	s.runtime = fakecri.New(o.runtime)
	s.runtime.AddImage(fakecri.Image{Name: podImage, Local: true})
	if o.before != nil {
		o.before(s.runtime)
	}
	socket := filepath.Join(s.rig.Dir, "fake.sock")
	if err := s.runtime.Listen(socket); err != nil {
		return err
	}
	defer s.runtime.Close()

	s.proxy = apiproxy.New(s.api)
	s.http = httptest.NewUnstartedServer(s.proxy)
	s.http.EnableHTTP2 = true
	s.http.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.http.StartTLS()
	defer s.http.Close()
	// This runs before Close, which waits for open requests.
	defer s.http.CloseClientConnections()
	s.client = s.api.Client()
	if s.watch, err = watchPods(ctx, s.client, "default"); err != nil {
		return err
	}
	defer s.watch.close()

	start, cancel := within(ctx, 90*time.Second)
	defer cancel()
	s.kubelet, err = s.rig.StartKubelet(start, rig.KubeletConfig{
		Binary:   c.binary,
		Endpoint: "unix://" + socket,
		External: &rig.ExternalAPI{
			URL:    s.http.URL,
			CA:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw}),
			Client: s.client,
		},
		Edit: func(k *kubeletconfig.KubeletConfiguration) {
			k.MaxPods = 1200
			k.StaticPodPath = ""
			if o.edit != nil {
				o.edit(k)
			}
		},
	})
	if err != nil {
		return err
	}
	defer s.kubelet.Stop()
	r.say("%s kubelet is up", c.who)
	defer r.logCalls(c, s) // also after a failure
	return play(ctx, s)
}

// create creates pods in parallel and returns their names.
func create(ctx context.Context, client kubernetes.Interface, pods []*corev1.Pod) ([]string, error) {
	names := make([]string, len(pods))
	errs := make(chan error, len(pods))
	slots := make(chan struct{}, 16)
	for i, p := range pods {
		names[i] = p.Name
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs <- createOne(ctx, client, p)
		}()
	}
	var failed error
	for range pods {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return names, failed
}
