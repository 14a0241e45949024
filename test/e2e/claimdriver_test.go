//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"keelson/test/kit/dradriver"
)

// claims is a DRA driver on the node, with its objects in the cluster: a DeviceClass, and the
// ResourceSlice from which the scheduler allocates. The driver runs in this process.
type claims struct {
	*space
	driver *dradriver.Driver
	name   string // of the driver and of its class
	socket string // where it registers
	listed sync.Once
	stop   func() // ends the goroutine of offered
}

// claims makes a driver, which does not run yet, and removes it at the end of the
// test.
func (s *space) claims(versions ...string) *claims {
	s.t.Helper()
	c := &claims{space: s, name: s.ns + ".dra.keelson.example"}
	if err := os.MkdirAll(s.Runtime.CDI, 0o755); err != nil {
		s.t.Fatal(err)
	}
	c.socket = filepath.Join(s.Kubelet.Root, "plugins_registry", c.name+".sock")
	c.driver = dradriver.New(dradriver.Config{
		Name:     c.name,
		CDIDir:   s.Runtime.CDI,
		Versions: versions,
		Devices:  c.devices,
	})
	api := s.Cluster.Client.ResourceV1()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` +
			c.name + `"`}}}}}
	if _, err := api.DeviceClasses().Create(s.t.Context(), class, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		// The namespace is cleaned up after this: its pods need the driver.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.clear(ctx)
		c.driver.Stop()
		if c.stop != nil {
			c.stop()
		}
		if err := api.DeviceClasses().Delete(ctx, c.name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
		if err := api.ResourceSlices().Delete(ctx, c.name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	})
	return c
}

// clear deletes the namespace's pods while the driver can still unprepare their claims.
func (c *claims) clear(ctx context.Context) {
	at := int64(1)
	pods := c.Cluster.Client.CoreV1().Pods(c.ns)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &at},
		metav1.ListOptions{}); err != nil {
		c.t.Error(err)
		return
	}
	until(c.t, "the pods with claims to be gone", func() (string, bool) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error(), false
		}
		var left []string
		for _, p := range list.Items {
			left = append(left, p.Name)
		}
		return strings.Join(left, " "), len(left) == 0
	})
}

// devices are the devices that the scheduler has allocated to a claim: one CDI device for each.
func (c *claims) devices(claim *drav1.Claim) []*drav1.Device {
	obj, err := c.Cluster.Client.ResourceV1().ResourceClaims(claim.Namespace).Get(context.Background(), claim.Name,
		metav1.GetOptions{})
	if err != nil || obj.Status.Allocation == nil {
		return nil
	}
	var out []*drav1.Device
	for _, r := range obj.Status.Allocation.Devices.Results {
		if r.Driver == c.name {
			out = append(out, &drav1.Device{RequestNames: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
				CdiDeviceIds: []string{c.driver.ID(claim.Uid + "-" + r.Device)}})
		}
	}
	return out
}

// serve starts the driver and waits until it is registered.
func (c *claims) serve() {
	c.t.Helper()
	if err := c.driver.Start(c.socket); err != nil {
		c.t.Fatal(err)
	}
	c.until("the driver to be registered", func() (string, bool) {
		reported := c.driver.Registrations()
		if len(reported) == 0 {
			return "it was not notified", false
		}
		last := reported[len(reported)-1]
		return last.Error, last.PluginRegistered
	})
}

// offered keeps the driver's ResourceSlice in place until the test ends. An agent that starts deletes
// the slices of drivers, some time after it is Ready.
func (c *claims) offered() {
	c.t.Helper()
	c.offer()
	c.listed.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				w, err := c.Cluster.Client.ResourceV1().ResourceSlices().Watch(ctx,
					metav1.ListOptions{FieldSelector: "metadata.name=" + c.name})
				if err != nil {
					continue
				}
				_ = c.list(ctx) // it may have been deleted before the watch; the error is that it exists
				for e := range w.ResultChan() {
					if e.Type == watch.Deleted {
						_ = c.list(ctx) // if the server is down, the watch ends, too
					}
				}
			}
		}()
		c.stop = func() { cancel(); <-done }
	})
}

// offer creates the driver's ResourceSlice.
func (c *claims) offer() {
	c.t.Helper()
	if err := c.list(c.t.Context()); err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

func (c *claims) list(ctx context.Context) error {
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: c.name, NodeName: ptr(c.Kubelet.Node), Pool: resourcev1.ResourcePool{
			Name:               c.Kubelet.Node,
			Generation:         1,
			ResourceSliceCount: 1,
		},
		Devices: []resourcev1.Device{{Name: "dev-0"}, {Name: "dev-1"}, {Name: "dev-2"}, {Name: "dev-3"}}}}
	_, err := c.Cluster.Client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// want is the spec of a claim: one device for each request.
func (c *claims) want(requests ...string) resourcev1.ResourceClaimSpec {
	var spec resourcev1.ResourceClaimSpec
	for _, name := range requests {
		spec.Devices.Requests = append(spec.Devices.Requests, resourcev1.DeviceRequest{Name: name,
			Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: c.name}})
	}
	return spec
}

// claim creates a ResourceClaim that pods can share.
func (c *claims) claim(name string, requests ...string) {
	c.t.Helper()
	_, err := c.Cluster.Client.ResourceV1().ResourceClaims(c.ns).Create(c.t.Context(),
		&resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       c.want(requests...),
		}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// template creates a ResourceClaimTemplate.
func (c *claims) template(name string, requests ...string) {
	c.t.Helper()
	_, err := c.Cluster.Client.ResourceV1().ResourceClaimTemplates(c.ns).Create(c.t.Context(),
		&resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: c.want(requests...)},
		}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// uses makes a pod use a claim, and its first container these requests of the claim; none: all.
func uses(claim string, requests ...string) spec {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{
			Name:              claim,
			ResourceClaimName: &claim,
		})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims,
			claimsOf(claim, requests)...)
	}
}

// usesNew makes a pod use a claim of its own, created from a template.
func usesNew(template string, requests ...string) spec {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{
			Name:                      "own",
			ResourceClaimTemplateName: &template,
		})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims,
			claimsOf("own", requests)...)
	}
}

func claimsOf(name string, requests []string) []corev1.ResourceClaim {
	if len(requests) == 0 {
		return []corev1.ResourceClaim{{Name: name}}
	}
	var out []corev1.ResourceClaim
	for _, r := range requests {
		out = append(out, corev1.ResourceClaim{Name: name, Request: r})
	}
	return out
}

// prepared waits until the driver has prepared these claims and no others.
func (c *claims) prepared(names ...string) {
	c.t.Helper()
	c.until("prepared: "+strings.Join(names, " "), func() (string, bool) {
		have := c.driver.Prepared()
		return strings.Join(have, " "), slices.Equal(have, slices.Sorted(slices.Values(names)))
	})
}

// count is how often the driver was called for a claim.
func (c *claims) count(method, claim string) (n int) {
	for _, call := range c.driver.Calls() {
		if call.Method == method && call.Claim == claim {
			n++
		}
	}
	return n
}

// devicesIn are the device files and variables from claims in a running container.
func (c *claims) devicesIn(pod string) (files, env string) {
	c.t.Helper()
	for _, f := range strings.Fields(c.kubectlDo("exec", pod, "--", "/demo", "ls", "/dev")) {
		if strings.Contains(f, "-dev-") {
			files += f + " "
		}
	}
	for _, line := range strings.Split(c.kubectlDo("exec", pod, "--", "/demo", "env"), "\n") {
		if strings.HasPrefix(line, "CLAIM_") {
			env += line + " "
		}
	}
	return files, env
}
