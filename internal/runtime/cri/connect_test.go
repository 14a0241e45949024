package cri

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/parity"
)

// sized responds with lists of a given size in bytes, and measures requests.
type sized struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	answer, asked int
}

func (s *sized) ListContainers(
	_ context.Context, r *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	s.asked = len(r.GetFilter().GetId())
	return &runtimeapi.ListContainersResponse{
		Containers: []*runtimeapi.Container{{Id: strings.Repeat("x", s.answer)}},
	}, nil
}

func TestRuntimeAndImageSockets(t *testing.T) {
	parity.Proves(t, "RT-01")
	t.Run("a socket for each service", func(t *testing.T) {
		dir := t.TempDir()
		one := func(name string, register func(*grpc.Server)) string {
			socket := filepath.Join(dir, name)
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			g := grpc.NewServer()
			register(g)
			go func() { _ = g.Serve(l) }() // ends with Stop
			t.Cleanup(g.Stop)
			return socket
		}
		s := &server{apiVersion: "v1"}
		containers := one("runtime.sock", func(g *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(g, s) })
		images := one("image.sock", func(g *grpc.Server) { runtimeapi.RegisterImageServiceServer(g, s) })
		c := dial(t, Config{RuntimeEndpoint: "unix://" + containers, ImageEndpoint: "unix://" + images})
		if _, err := c.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
			t.Errorf("Version = %v", err)
		}
		if _, err := c.PullImage(t.Context(), &runtimeapi.PullImageRequest{}); err != nil {
			t.Errorf("PullImage = %v", err)
		}
		c = dial(t, Config{RuntimeEndpoint: "unix://" + containers})
		if _, err := c.PullImage(t.Context(), &runtimeapi.PullImageRequest{}); !IsUnimplemented(err) {
			t.Errorf("PullImage without an endpoint of its own = %v, want a call to the socket of the other service",
				err)
		}
	})
	t.Run("messages of 16 MiB and no more", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "cri.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &sized{}
		g := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(64<<20))
		runtimeapi.RegisterRuntimeServiceServer(g, s)
		go func() { _ = g.Serve(l) }() // ends with Stop
		t.Cleanup(g.Stop)
		c := dial(t, Config{RuntimeEndpoint: socket})
		const around = 1 << 10 // overhead of a message
		for _, tc := range []struct {
			ask, answer int
			fits        bool
		}{{16<<20 - around, 16<<20 - around, true}, {16<<20 + around, 1, false}, {1, 16<<20 + around, false}} {
			s.answer, s.asked = tc.answer, 0
			_, err := c.ListContainers(t.Context(),
				&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: strings.Repeat("x", tc.ask)}})
			if fits := err == nil; fits != tc.fits || err != nil && status.Code(err) != codes.ResourceExhausted {
				t.Errorf("asking with %d bytes for %d: %v, want fits: %v", tc.ask, tc.answer, err, tc.fits)
			}
		}
	})
	t.Run("only version v1 is spoken", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "cri.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer() // serves runtime.v1alpha2 perhaps, and no runtime.v1
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		t.Cleanup(func() {
			g.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		if _, err := dial(t, Config{RuntimeEndpoint: socket}).Handshake(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "does not serve runtime.v1.RuntimeService") {
			t.Errorf("Handshake = %v, want that the service is missing", err)
		}
	})
	t.Run("a runtime that starts late", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "cri.sock")
		failed, observe := failures()
		c := dial(t, Config{RuntimeEndpoint: socket, Observe: observe})
		got := make(chan error, 1)
		go func() {
			_, err := c.Handshake(t.Context())
			got <- err
		}()
		for range 3 {
			<-failed
		}
		serve(t, socket, &server{apiVersion: "v1", config: &runtimeapi.RuntimeConfigResponse{}})
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
	t.Run("one that does not come is an error", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "cri.sock")
		start := time.Now()
		_, err := dial(t, Config{RuntimeEndpoint: socket, RequestTimeout: 2 * time.Second}).Handshake(t.Context())
		if took := time.Since(start); err == nil ||
			!strings.Contains(err.Error(),
				"wait for container runtime at "+socket+" (containerRuntimeEndpoint): no answer within 2s: ") ||
			!strings.Contains(err.Error(), socket) || took < 2*time.Second {
			t.Errorf("Handshake = %v after %v, want an error that names the socket after 2 s", err, took)
		}
	})
	t.Run("an image service that does not respond", func(t *testing.T) {
		dir := t.TempDir()
		containers, images := filepath.Join(dir, "runtime.sock"), filepath.Join(dir, "image.sock")
		s := &server{apiVersion: "v1", config: &runtimeapi.RuntimeConfigResponse{}}
		serve(t, containers, s)
		hands := func(cfg Config) error {
			cfg.RuntimeEndpoint, cfg.RequestTimeout = containers, 2*time.Second
			_, err := dial(t, cfg).Handshake(t.Context())
			return err
		}
		if err := hands(Config{}); err != nil {
			t.Error(err)
		}
		if err := hands(Config{ImageEndpoint: images}); err == nil ||
			!strings.Contains(err.Error(),
				"wait for image service at "+images+" (imageServiceEndpoint): no answer within 2s: ") {
			t.Errorf("Handshake = %v, want an error that names the socket of the image service", err)
		}
		s.imageErr = status.Error(codes.Unknown, "no snapshotter")
		if err := hands(Config{}); err == nil ||
			!strings.Contains(err.Error(),
				"wait for image service at "+containers+" (containerRuntimeEndpoint): no answer within 2s: ") ||
			!strings.Contains(err.Error(), "no snapshotter") {
			t.Errorf("Handshake = %v, want the error of the image service", err)
		}
		l, err := net.Listen("unix", images)
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer() // without the image service
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		t.Cleanup(func() {
			g.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		if err := hands(Config{ImageEndpoint: images}); err == nil ||
			!strings.Contains(err.Error(), "does not serve runtime.v1.ImageService") {
			t.Errorf("Handshake = %v, want that the image service is missing", err)
		}
	})
}
