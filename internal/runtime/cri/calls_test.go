package cri

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

var runtimeCalls = strings.Fields(`Version RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox
	CreateContainer StartContainer StopContainer RemoveContainer ListContainers ContainerStatus UpdateContainerResources
	UpdatePodSandboxResources ReopenContainerLog ExecSync Exec Attach PortForward ContainerStats ListContainerStats
	PodSandboxStats ListPodSandboxStats UpdateRuntimeConfig Status CheckpointContainer GetContainerEvents
	ListMetricDescriptors ListPodSandboxMetrics RuntimeConfig`)

var imageCalls = strings.Fields(`ListImages ImageStatus PullImage RemoveImage ImageFsInfo`)

// named maps calls to the client's methods, where these have another name.
var named = map[string]string{"GetContainerEvents": "ContainerEvents", "RuntimeConfig": "Handshake"}

// calls records the calls made over a connection.
type calls struct {
	grpc.ClientConnInterface
	mu   sync.Mutex
	seen []string
}

func (c *calls) note(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, filepath.Base(method))
}

func (c *calls) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.note(method)
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c *calls) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c.note(method)
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

func TestImageServiceCalls(t *testing.T) {
	parity.Proves(t, "RT-06")
	for _, name := range unused(t, imageCalls) {
		t.Errorf("no caller of %s", name)
	}
}

// spared are the calls that the agent does not use: it reads the usage of all pods in one call, not of one pod.
var spared = []string{"PodSandboxStats"}

func TestRuntimeServiceCalls(t *testing.T) {
	parity.Differs(t, "RT-05", "0050")
	if left := unused(t, runtimeCalls); !slices.Equal(left, spared) {
		t.Errorf("no callers of %v, want %v", left, spared)
	}
}

// unused makes each call on a fake runtime through the client, and returns those that no other
// package of the agent makes.
func unused(t *testing.T, names []string) []string {
	t.Helper()
	fake := fakecri.New(fakecri.Options{})
	defer fake.Close()
	conn, err := fake.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	seen := &calls{ClientConnInterface: conn}
	client := reflect.ValueOf(Over(seen, seen, Config{RequestTimeout: 10 * time.Second}))
	source := agentSource(t)
	var left []string
	for _, name := range names {
		method := name
		if other := named[name]; other != "" {
			method = other
		}
		m := client.MethodByName(method)
		if !m.IsValid() {
			t.Errorf("the client cannot call %s", name)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		in := []reflect.Value{reflect.ValueOf(ctx)}
		if m.Type().NumIn() == 2 {
			arg := reflect.Zero(m.Type().In(1))
			if arg.Kind() == reflect.Pointer {
				arg = reflect.New(m.Type().In(1).Elem())
			}
			in = append(in, arg)
		}
		if name == "GetContainerEvents" {
			cancel() // it would not return
		}
		m.Call(in) // the response to an empty request does not matter
		cancel()
		if !slices.Contains(seen.seen, name) {
			t.Errorf("%s does not reach the runtime: %v", name, seen.seen)
		}
		if !regexp.MustCompile(`untime\.` + method + `\(`).MatchString(source) {
			left = append(left, name)
		}
	}
	return left
}

// agentSource returns the source of all packages of the agent except this one.
func agentSource(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && filepath.Base(path) == "cri" {
			return errorOrSkip(err)
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		b.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func errorOrSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}
