package dra

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"keelson/test/kit/dradriver"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

func TestSharedClaimIsPreparedOnce(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-59")
	play(t, func(s *stage) {
		a, b := using("a", "shared"), using("b", "shared")
		s.claim("shared", []string{driverName}, a, b)
		d := s.driver(driverName)
		s.is(a, true, "") // Want was not called yet
		s.wants(a)
		s.wants(b)
		s.is(a, true, "")
		s.is(b, true, "")
		s.called(d, "Prepare shared")
		got, err := s.Contribution(a, &a.Spec.Containers[0])
		if err != nil || !slices.Equal(got.CDIDevices, []string{driverName + "/claim=uid-of-shared"}) {
			t.Errorf("the container is given %v, %v", got.CDIDevices, err)
		}
		s.releases(a)
		s.called(d, "Prepare shared")
		if done, err := s.Released(a.UID); !done || err != nil {
			t.Errorf("a is released: %v, %v", done, err)
		}
		s.is(b, true, "")
		s.releases(b)
		s.releases(b)
		s.called(d, "Prepare shared, Unprepare shared")
		if text := s.text(); strings.Contains(text, "shared") {
			t.Errorf("the file says %s", text)
		}
		if len(s.events.Lines()) > 0 {
			t.Errorf("logged: %q", s.events.Lines())
		}
	})
}

func TestPrepareIsRetried(t *testing.T) {
	parity.ProvesPart(t, 20, "SRV-61")
	parity.ProvesPart(t, 3, "RES-59")
	play(t, func(s *stage) {
		p := using("p", "c")
		s.wants(p)
		s.is(p, false, "fetch ResourceClaim c: not found")
		c := s.claim("c", []string{driverName})
		after(minRetry)
		s.is(p, false, "pod p (p) is not allowed to use ResourceClaim c (uid-of-c)")
		s.cluster.set(func() { c.ReservedFor = reservedFor(p) })
		after(2 * minRetry)
		s.is(p, false, "DRA driver "+driverName+" is not registered")
		if at := s.RetryAt(p.UID); !at.Equal(time.Now().Add(4 * minRetry)) {
			t.Errorf("it is tried again in %v", time.Until(at))
		}
		if strings.Contains(s.text(), "uid-of-c") {
			t.Errorf("noted before its driver was there: %s", s.text())
		}
		d := dradriver.New(dradriver.Config{Name: driverName})
		defer d.Stop()
		d.Fault("NodePrepareResources", dradriver.Fault{Claim: "no luck"})
		s.listen(d, "socket")
		s.register(driverName, "socket") // the pod is retried at once, before its back-off is over
		synctest.Wait()
		s.is(p, false, "NodePrepareResources failed for ResourceClaim c: no luck")
		d.Fault("NodePrepareResources", dradriver.Fault{Omit: true})
		after(maxRetry)
		s.is(p, false, "NodePrepareResources skipped ResourceClaim c")
		d.Fault("NodePrepareResources", dradriver.Fault{})
		after(maxRetry)
		s.is(p, true, "")
		logged := strings.Join(s.events.Lines(), "\n")
		for _, want := range []string{
			"p Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: prepare dynamic resources: " +
				"DRA driver " + driverName + " is not registered",
			"p Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: prepare dynamic resources: " +
				"NodePrepareResources failed for ResourceClaim c: no luck",
		} {
			if !strings.Contains(logged, want) {
				t.Errorf("not logged: %s; but\n%s", want, logged)
			}
		}
		d.Fault("NodeUnprepareResources", dradriver.Fault{Claim: "not now"})
		s.releases(p)
		after(maxRetry)
		if done, err := s.Released(p.UID); done || err == nil || !strings.Contains(err.Error(), "not now") {
			t.Errorf("released: %v, %v", done, err)
		}
		if n := strings.Count(strings.Join(s.events.Lines(), "\n"), "FailedKillPod"); n != 1 {
			t.Errorf("what keeps the pod was logged %d times", n)
		}
		d.Fault("NodeUnprepareResources", dradriver.Fault{})
		after(maxRetry)
		if done, _ := s.Released(p.UID); !done {
			t.Error("the pod is not released")
		}
		n := scrape.Of(t, s.Manager)
		if n["dra_operations_duration_seconds{is_error=true,operation_name=PrepareResources}"] == 0 {
			t.Errorf("%v", n)
		}
	})
}

func TestPodWithoutClaims(t *testing.T) {
	play(t, func(s *stage) {
		p := using("p")
		s.wants(p)
		s.is(p, true, "")
		s.releases(p)
		if done, _ := s.Released(p.UID); !done || s.cluster.reads > 0 || s.text() != "" {
			t.Errorf("released: %v; %d claims were read; the file says %q", done, s.cluster.reads, s.text())
		}
	})
}

func TestDriverTimeout(t *testing.T) {
	parity.Proves(t, "RES-66")
	parity.ProvesPart(t, 2, "RES-58")
	for _, service := range []string{dradriver.V1, dradriver.V1Beta1} {
		play(t, func(s *stage) {
			p := using("p", "c")
			s.claim("c", []string{driverName}, p)
			d := s.driver(driverName, service)
			d.Fault("NodePrepareResources", dradriver.Fault{Hang: make(chan struct{})})
			s.wants(p)
			after(44 * time.Second)
			s.is(p, false, "")
			after(time.Second)
			s.is(p, false, "DeadlineExceeded")
			d.Fault("NodePrepareResources", dradriver.Fault{})
			after(maxRetry)
			s.is(p, true, "")
			if got := scrape.Of(t, s.Manager); got["dra_resource_claims_in_use{driver_name="+driverName+"}"] != 1 ||
				got["dra_resource_claims_in_use{driver_name=<any>}"] != 1 ||
				got["dra_operations_duration_seconds{is_error=true,operation_name=PrepareResources}"] != 1 ||
				got["dra_operations_duration_seconds{is_error=false,operation_name=PrepareResources}"] != 1 {
				t.Errorf("%v", got)
			}
			s.releases(p)
			if left := d.Prepared(); len(left) > 0 {
				t.Errorf("%s: left prepared: %v", service, left)
			}
			s.called(d, "Prepare c, Prepare c, Unprepare c")
			got := scrape.Of(t, s.Manager)
			prefix := "dra_grpc_operations_duration_seconds{driver_name=" + driverName + ",grpc_status_code="
			method := ",method_name=/k8s.io.kubelet.pkg.apis.dra." + service + "/"
			if got[prefix+"DeadlineExceeded"+method+"NodePrepareResources}"] != 1 ||
				got[prefix+"OK"+method+"NodeUnprepareResources}"] != 1 {
				t.Errorf("%s: %v", service, got)
			}
		})
	}
}

func TestHangingDriverBlocksOnlyItsPods(t *testing.T) {
	play(t, func(s *stage) {
		hung, other, fine := using("hung", "c"), using("other", "c"), using("fine", "f")
		s.claim("c", []string{driverName}, hung, other)
		s.claim("f", []string{driverName, "second.example.com"}, fine)
		d, second := s.driver(driverName), s.driver("second.example.com")
		hang := make(chan struct{})
		d.Fault("NodePrepareResources", dradriver.Fault{Hang: hang})
		s.wants(hung)
		s.wants(other)
		d.Fault("NodePrepareResources", dradriver.Fault{})
		s.wants(fine)
		s.is(fine, true, "")
		s.is(hung, false, "")
		s.is(other, false, "")
		s.called(d, "Prepare c, Prepare f")
		s.called(second, "Prepare f")
		if in := scrape.Of(t, s.Manager); in["dra_resource_claims_in_use{driver_name=<any>}"] != 2 ||
			in["dra_resource_claims_in_use{driver_name="+driverName+"}"] != 2 ||
			in["dra_resource_claims_in_use{driver_name=second.example.com}"] != 1 {
			t.Errorf("%v", in)
		}
		// A pod that terminates does not wait for a call that hangs.
		s.releases(hung)
		if done, err := s.Released(hung.UID); !done {
			t.Errorf("released: %v, %v", done, err)
		}
		s.is(other, true, "")
		close(hang)
	})
}

// The agent is killed in each state of a claim, and the next agent continues.
func TestClaimsAfterCrash(t *testing.T) {
	parity.Proves(t, "PLUG-30")
	parity.ProvesPart(t, 3, "RES-62")
	reborn := func(s *stage) {
		s.kill()
		s.register(driverName, driverName)
		synctest.Wait()
	}
	t.Run("while a driver prepares, pod still desired", func(t *testing.T) {
		play(t, func(s *stage) {
			p := using("p", "c")
			s.claim("c", []string{driverName}, p)
			d := s.driver(driverName)
			hang := make(chan struct{})
			d.Fault("NodePrepareResources", dradriver.Fault{Hang: hang, Late: true})
			s.wants(p)
			if !strings.Contains(s.text(), "uid-of-c") {
				t.Errorf("the driver was asked, and the file says %s", s.text())
			}
			d.Fault("NodePrepareResources", dradriver.Fault{})
			reborn(s)
			close(hang)
			s.wants(p)
			s.is(p, true, "")
			s.releases(p)
			s.called(d, "Prepare c, Prepare c, Unprepare c")
		})
	})
	t.Run("while a driver prepares, pod removed meanwhile", func(t *testing.T) {
		play(t, func(s *stage) {
			p := using("p", "c")
			s.claim("c", []string{driverName}, p)
			d := s.driver(driverName)
			hang := make(chan struct{})
			d.Fault("NodePrepareResources", dradriver.Fault{Hang: hang, Late: true})
			s.wants(p)
			reborn(s)
			close(hang)
			synctest.Wait()
			s.Prune(func(types.UID) bool { return true })
			synctest.Wait()
			if len(d.Prepared()) != 1 {
				t.Error("it was taken back from a pod that is known")
			}
			if done, _ := s.Released(p.UID); done {
				t.Error("what is prepared counts as released")
			}
			s.Prune(func(types.UID) bool { return false })
			synctest.Wait()
			s.called(d, "Prepare c, Unprepare c")
			if left := d.Prepared(); len(left) > 0 {
				t.Errorf("left prepared: %v", left)
			}
		})
	})
	t.Run("all claims prepared", func(t *testing.T) {
		play(t, func(s *stage) {
			p := using("p", "c")
			s.claim("c", []string{driverName}, p)
			d := s.driver(driverName)
			s.wants(p)
			reborn(s)
			reads := s.cluster.reads
			s.wants(p)
			s.is(p, true, "")
			if s.cluster.reads != reads {
				t.Error("the claim was read again")
			}
			if got, err := s.Contribution(p, &p.Spec.Containers[0]); err != nil || len(got.CDIDevices) != 1 {
				t.Errorf("%v, %v", got, err)
			}
			s.called(d, "Prepare c")
		})
	})
	t.Run("while a driver unprepares", func(t *testing.T) {
		play(t, func(s *stage) {
			p := using("p", "c")
			s.claim("c", []string{driverName}, p)
			d := s.driver(driverName)
			s.wants(p)
			hang := make(chan struct{})
			d.Fault("NodeUnprepareResources", dradriver.Fault{Hang: hang, Late: true})
			s.releases(p)
			d.Fault("NodeUnprepareResources", dradriver.Fault{})
			reborn(s)
			close(hang)
			s.Prune(func(types.UID) bool { return false })
			synctest.Wait()
			s.called(d, "Prepare c, Unprepare c, Unprepare c")
			reborn(s)
			s.Prune(func(types.UID) bool { return false })
			synctest.Wait()
			s.called(d, "Prepare c, Unprepare c, Unprepare c")
		})
	})
	t.Run("driver unavailable", func(t *testing.T) {
		play(t, func(s *stage) {
			p := using("p", "c")
			s.claim("c", []string{driverName}, p)
			d := s.driver(driverName)
			s.wants(p)
			s.kill()
			s.Prune(func(types.UID) bool { return false })
			after(time.Hour)
			s.called(d, "Prepare c")
			s.register(driverName, driverName)
			synctest.Wait()
			s.called(d, "Prepare c, Unprepare c")
		})
	})
}

func TestClaimsOfRemovedPodsAreReconciled(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-62")
	play(t, func(s *stage) {
		asked := 0
		s.Prune(func(types.UID) bool { asked++; return asked < 2 })
		d := s.driver(driverName)
		after(time.Hour)
		if asked > 0 {
			t.Errorf("without claims it was asked %d times who there is", asked)
		}
		p := using("p", "c")
		s.claim("c", []string{driverName}, p)
		s.wants(p)
		after(119 * time.Second) // pruned once a minute
		s.called(d, "Prepare c")
		after(time.Second)
		s.called(d, "Prepare c, Unprepare c")
		after(time.Hour)
		if asked != 2 {
			t.Errorf("it was asked %d times who there is", asked)
		}
	})
}

func TestCorruptCheckpoint(t *testing.T) {
	play(t, func(s *stage) {
		p := using("p", "c")
		s.claim("c", []string{driverName}, p)
		d := s.driver(driverName)
		s.wants(p)
		s.end()
		text := strings.Replace(s.text(), "uid-of-c", "uid-of-d", 1)
		if err := os.WriteFile(s.file(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := New(Config{Path: s.file()}).Load(); err == nil || !strings.Contains(err.Error(), "the checksum is") {
			t.Errorf("%v", err)
		}
		if kept, err := os.ReadFile(s.file() + ".bad"); err != nil || string(kept) != text {
			t.Errorf("kept: %q, %v", kept, err)
		}
		s.start()
		s.register(driverName, driverName)
		s.wants(p)
		s.is(p, true, "") // and it can be unprepared
		s.releases(p)
		s.called(d, "Prepare c, Prepare c, Unprepare c")
	})
}

func TestClaimWithSameNameAndOtherUID(t *testing.T) {
	play(t, func(s *stage) {
		old, next := using("old", "c"), using("next", "c")
		s.claim("c", []string{driverName}, old)
		d := s.driver(driverName)
		s.wants(old)
		s.claim("c", []string{driverName}, next).UID = "another"
		s.wants(next)
		s.is(next, false,
			"old ResourceClaim with same name c and different UID uid-of-c still exists (previous pod force-deleted?!)")
		s.releases(old)
		after(maxRetry)
		s.is(next, true, "")
		s.called(d, "Prepare c, Unprepare c, Prepare c")
	})
}

func TestPrepareNeedsCheckpoint(t *testing.T) {
	play(t, func(s *stage) {
		p := using("p", "c")
		s.claim("c", []string{driverName}, p)
		d := s.driver(driverName)
		if err := os.RemoveAll(s.dir); err != nil {
			t.Fatal(err)
		}
		s.wants(p)
		s.is(p, false, "write checkpoint of claims")
		s.called(d, "")
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		after(maxRetry)
		s.is(p, true, "")
	})
}

func TestContributionOfRequests(t *testing.T) {
	parity.Proves(t, "RES-65")
	parity.ProvesPart(t, 2, "RES-58")
	play(t, func(s *stage) {
		own, none := "made", "gone"
		p := using("p")
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{
			Name:                      "own",
			ResourceClaimTemplateName: &own,
		}, {Name: "none", ResourceClaimTemplateName: &none}}
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{
			Name:              "own",
			ResourceClaimName: &own,
		}, {Name: "none"}}
		extended := "extended"
		p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
			ResourceClaimName: extended,
			RequestMappings: []v1.ContainerExtendedResourceRequest{{
				ContainerName: "ext",
				ResourceName:  "example.com/gpu",
				RequestName:   "container-0-request-0",
			}},
		}
		for _, name := range []string{own, extended} {
			c := s.claim(name, []string{driverName}, p)
			s.cluster.set(func() { c.OwnerReferences = ownedBy(p) })
		}
		devices := func(c *drav1.Claim) []*drav1.Device {
			if c.Namespace != "ns" || c.Uid != "uid-of-"+c.Name {
				t.Errorf("the driver is asked for %s/%s, %s", c.Namespace, c.Name, c.Uid)
			}
			if c.Name == extended {
				return []*drav1.Device{{
					RequestNames: []string{"container-0-request-0"},
					CdiDeviceIds: []string{"x/y=ext"},
				}}
			}
			return []*drav1.Device{
				{RequestNames: []string{"a"}, CdiDeviceIds: []string{"x/y=a", "x/y=both"}},
				{RequestNames: []string{"b/second"}, CdiDeviceIds: []string{"x/y=b", "x/y=both"}},
				{CdiDeviceIds: []string{"x/y=all"}},
				{RequestNames: []string{"a"}},
			}
		}
		d := dradriver.New(dradriver.Config{Name: driverName, Devices: devices})
		s.listen(d, driverName)
		defer d.Stop()
		s.register(driverName, driverName)
		s.wants(p)
		s.is(p, true, "")
		for _, tc := range []struct {
			name   string
			claims []v1.ResourceClaim
			want   string
		}{
			{"all", []v1.ResourceClaim{{Name: "own"}}, "a both b all"},
			{"one", []v1.ResourceClaim{{Name: "own", Request: "a"}}, "a both all"},
			{"with alternatives", []v1.ResourceClaim{{Name: "own", Request: "b"}}, "b both all"},
			{"both", []v1.ResourceClaim{{Name: "own", Request: "b"}, {Name: "own", Request: "a"}}, "b both all a"},
			{"none", nil, ""},
			{"claim not created", []v1.ResourceClaim{{Name: "none"}}, ""},
			{"ext", nil, "ext"},
		} {
			got, err := s.Contribution(p, &v1.Container{
				Name:      tc.name,
				Resources: v1.ResourceRequirements{Claims: tc.claims},
			})
			if text := strings.ReplaceAll(strings.Join(got.CDIDevices, " "), "x/y=", ""); text != tc.want ||
				err != nil {
				t.Errorf("%s: %q, %v; want %q", tc.name, text, err, tc.want)
			}
		}
		if _, err := s.Contribution(p, &v1.Container{
			Name:      "c",
			Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "x"}}},
		}); err == nil {
			t.Error("a container uses a claim that its pod does not name")
		}
		s.releases(p)
		if _, err := s.Contribution(p, &v1.Container{Name: "ext"}); err == nil ||
			shown(err) != "unable to get information for ResourceClaim extended" {
			t.Errorf("%v", err)
		}
		if left := d.Prepared(); len(left) > 0 {
			t.Errorf("left prepared: %v", left)
		}
	})
}

func TestClaimNamesFromStatus(t *testing.T) {
	play(t, func(s *stage) {
		name := "made"
		p := using("p")
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "own", ResourceClaimTemplateName: &name}}
		c := s.claim(name, []string{driverName}, p)
		s.cluster.set(func() { c.OwnerReferences = ownedBy(p) })
		s.driver(driverName)
		s.wants(p)
		s.is(p, false, `pod "ns/p": ResourceClaim not created yet`)
		p = p.DeepCopy()
		p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "own", ResourceClaimName: &name}}
		s.wants(p) // it is prepared at once, without back-off
		s.is(p, true, "")
	})
}

func TestClaimsWithoutAPIServer(t *testing.T) {
	play(t, func(s *stage) {
		s.Manager.cfg.API = nil
		p := using("p", "c")
		s.wants(p)
		s.is(p, false, "no API server configured")
	})
}

func TestResourceSlicesAreDeleted(t *testing.T) {
	parity.Proves(t, "RES-64", "PLUG-28")
	play(t, func(s *stage) {
		wiped := func(want ...string) {
			t.Helper()
			synctest.Wait()
			s.cluster.set(func() {
				if !slices.Equal(s.cluster.wiped, want) {
					t.Errorf("deleted:  %q, want %q", s.cluster.wiped, want)
				}
			})
		}
		wiped("all")
		d := s.driver(driverName)
		after(time.Hour)
		wiped("all")
		d.Stop()
		after(20 * time.Second)
		wiped("all")
		s.listen(d, driverName) // it serves again in time
		after(time.Hour)
		wiped("all")
		d.Stop()
		after(30 * time.Second)
		wiped("all", driverName)
		after(time.Hour)
		wiped("all", driverName)
		s.listen(d, driverName)
		after(time.Hour)
		if err := s.drivers.Deregister(t.Context(), driverName, driverName); err != nil {
			t.Error(err)
		}
		s.cluster.set(func() { s.cluster.fails = errors.New("away") })
		after(time.Hour)
		wiped("all", driverName)
		s.cluster.set(func() { s.cluster.fails = nil })
		after(maxDeleteRetry + maxDeleteRetry/10) // with jitter
		wiped("all", driverName, driverName)
		d.Stop()
	})
}

func TestLatestConnectedInstanceIsCalled(t *testing.T) {
	parity.Proves(t, "PLUG-27")
	play(t, func(s *stage) {
		p, q, r := using("p", "1"), using("q", "2"), using("r", "3")
		s.claim("1", []string{driverName}, p)
		s.claim("2", []string{driverName}, q)
		s.claim("3", []string{driverName}, r)
		old := s.driver(driverName)
		next := dradriver.New(dradriver.Config{Name: driverName})
		defer next.Stop()
		s.listen(next, "next")
		s.register(driverName, "next")
		synctest.Wait()
		s.wants(p)
		next.Stop()
		synctest.Wait()
		s.wants(q)
		s.listen(next, "next")
		after(maxReconnect)
		if err := s.drivers.Deregister(t.Context(), driverName, driverName); err != nil {
			t.Error(err)
		}
		if err := s.drivers.Deregister(t.Context(), driverName, driverName); err != nil {
			t.Error(err)
		}
		s.wants(r)
		s.called(next, "Prepare 1, Prepare 3")
		s.called(old, "Prepare 2")
		if err := s.drivers.Register(t.Context(), driverName, "next", []string{dradriver.V1}); err == nil {
			t.Error("one endpoint was registered twice")
		}
		for _, tc := range []struct {
			services []string
			want     string // the service; empty: it is refused
		}{
			{[]string{"v1.DRAPlugin"}, "v1.DRAPlugin"},
			{[]string{"v1beta1.DRAPlugin", "v1.DRAPlugin"}, "v1beta1.DRAPlugin"},
			{[]string{"v9.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1.DRAPlugin"}, "v1.DRAPlugin"},
			{[]string{"v1alpha1.DRAResourceHealth"}, ""},
			{[]string{"1.0.0"}, ""},
			{nil, ""},
		} {
			if got, err := chooseService(driverName, tc.services); got != tc.want || (err == nil) == (tc.want == "") {
				t.Errorf("%q: %q, %v", tc.services, got, err)
			}
			if err := s.drivers.Validate(driverName, "x", tc.services); (err == nil) == (tc.want == "") {
				t.Errorf("%q: %v", tc.services, err)
			}
		}
		if err := s.drivers.Validate("Not a name", "x", []string{"v1.DRAPlugin"}); err == nil {
			t.Error("any name will do")
		}
	})
}
