package cri

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"keelson/test/kit/fakecri"
)

// changing are the calls that leak state in a runtime if they are cancelled.
var changing = strings.Fields(
	`RunPodSandbox StopPodSandbox RemovePodSandbox CreateContainer StartContainer RemoveContainer
	UpdateContainerResources UpdatePodSandboxResources RemoveImage`)

// hangIn makes a call that hangs, and returns when it has reached the runtime.
func hangIn(ctx context.Context, t *testing.T, method string) (c *Client, returned chan error) {
	t.Helper()
	fake := fakecri.New(fakecri.Options{})
	t.Cleanup(fake.Close)
	hang := fake.Inject(fakecri.Fault{Method: method, Hang: true})
	conn, err := fake.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c = Over(conn, conn, Config{RequestTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	call := reflect.ValueOf(c).MethodByName(method)
	returned = make(chan error, 1)
	go func() {
		out := call.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.New(call.Type().In(1).Elem())})
		err, _ := out[1].Interface().(error)
		returned <- err
	}()
	<-hang.Hit()
	return c, returned
}

// TestStartedCallsAreNotCancelled: a call that changes state outlives its context, up to its
// timeout. It is not made if the context has ended.
func TestStartedCallsAreNotCancelled(t *testing.T) {
	for _, method := range changing {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := time.Minute
				if method == "RunPodSandbox" {
					limit = 2 * time.Minute
				}
				ctx, cancel := context.WithCancel(t.Context())
				begin := time.Now()
				c, returned := hangIn(ctx, t, method)
				cancel()
				if err := <-returned; !IsTimeout(err) || time.Since(begin) != limit {
					t.Errorf("ended after %s: %v; want the timeout after %s", time.Since(begin), err, limit)
				}
				if _, err := c.StartContainer(ctx, nil); !IsCanceled(err) {
					t.Errorf("a call after the end of its context: %v", err)
				}
			})
		})
	}
}

// TestStartedCallsHaveGraceAtShutdown: calls under way have ten seconds when the agent exits.
func TestStartedCallsHaveGraceAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, returned := hangIn(t.Context(), t, "RunPodSandbox")
		ended, end := context.WithCancel(t.Context())
		end()
		begin := time.Now()
		if err := c.Run(ended); err != nil {
			t.Error(err)
		}
		if err := <-returned; !IsCanceled(err) || time.Since(begin) != 10*time.Second {
			t.Errorf("ended after %s: %v", time.Since(begin), err)
		}
	})
}
