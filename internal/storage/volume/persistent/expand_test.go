package persistent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"keelson/internal/storage/volume"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
)

func storage(amount string) v1.ResourceList {
	if amount == "" {
		return nil
	}
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(amount)}
}

// claimWith returns a claim with a size, an allocated size, and the state of an expansion.
func claimWith(
	known, allocated string, status v1.ClaimResourceStatus, modes ...v1.PersistentVolumeAccessMode,
) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", ResourceVersion: "7"},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes,
			Resources:   v1.VolumeResourceRequirements{Requests: storage("2Gi")},
		},
		Status: v1.PersistentVolumeClaimStatus{Capacity: storage(known), AllocatedResources: storage(allocated)},
	}
	if status != "" {
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: status}
	}
	return c
}

// growing is a plugin that expands, and an API server with one claim.
type growing struct {
	Plugin
	API
	claim  *v1.PersistentVolumeClaim
	err    error // of Expand
	sizes  []string
	events eventlog.Log
	refuse bool // patches
}

func (g *growing) Expand(_ context.Context, _ Request, size resource.Quantity) error {
	g.sizes = append(g.sizes, size.String())
	return g.err
}

func (g *growing) PatchClaimStatus(_ context.Context, _, _ string, patch []byte) (*v1.PersistentVolumeClaim, error) {
	if g.refuse {
		return nil, errors.New("no")
	}
	before, err := json.Marshal(g.claim)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.PersistentVolumeClaim{})
	if err != nil {
		return nil, err
	}
	next := &v1.PersistentVolumeClaim{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	g.claim = next
	return next, nil
}

func (g *growing) ofClaim(c *v1.PersistentVolumeClaim, eventType, reason, message string) {
	g.events.Add("claim "+c.Name, eventType, reason, message)
}

// shown formats the sizes and conditions of a claim.
func shown(c *v1.PersistentVolumeClaim) string {
	size := c.Status.Capacity[v1.ResourceStorage]
	out := size.String()
	if s := c.Status.AllocatedResourceStatuses[v1.ResourceStorage]; s != "" {
		out += " " + string(s)
	}
	for _, cond := range c.Status.Conditions {
		out += fmt.Sprintf(" %s=%s(%s)", cond.Type, cond.Status, cond.Message)
	}
	return out
}

// Expansion on the node from a smaller size to 2Gi: at mount, and while a pod uses the volume.
func TestExpandOnTheNode(t *testing.T) {
	parity.ProvesPart(t, 5, "VOL-21")
	const (
		pending    v1.ClaimResourceStatus = "NodeResizePending"
		inProgress v1.ClaimResourceStatus = "NodeResizeInProgress"
		infeasible v1.ClaimResourceStatus = "NodeResizeInfeasible"
	)
	fails := errors.New("no space")
	many := v1.ReadWriteMany
	both := func(what string) []string { return []string{"p " + what, "claim c " + what} }
	succeeded := both(`Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv" n1`)
	for _, c := range []struct {
		name     string
		claim    *v1.PersistentVolumeClaim
		has      growth // of the node
		inUse    bool   // a pod uses the volume
		readOnly bool
		block    bool
		noClaim  bool
		refuse   bool
		err      error

		sizes  string // the plugin was called with
		shows  string // the claim, afterwards
		events []string
		fails  string // error returned
		reason string
		size   string // size recorded on the node afterwards
		stuck  bool
		failed bool
	}{
		{name: "the same size", claim: claimWith("2Gi", "", ""), shows: "2Gi", size: "2Gi"},
		{name: "no claim", claim: claimWith("1Gi", "", ""), noClaim: true, shows: "1Gi", size: "0"},
		{
			name:   "the node's turn",
			claim:  claimWith("1Gi", "2Gi", pending),
			sizes:  "2Gi",
			shows:  "2Gi",
			events: succeeded,
			size:   "2Gi",
		},
		{
			name:   "the node's turn, begun before",
			claim:  claimWith("1Gi", "2Gi", inProgress),
			sizes:  "2Gi",
			shows:  "2Gi",
			events: succeeded,
			size:   "2Gi",
		},
		{
			name:   "the node's turn, with a smaller size than the volume's",
			claim:  claimWith("1Gi", "1536Mi", pending),
			sizes:  "1536Mi",
			shows:  "1536Mi",
			events: succeeded,
			size:   "1536Mi",
		},
		{
			name:  "the controller's turn",
			claim: claimWith("1Gi", "2Gi", "ControllerResizeInProgress"),
			shows: "1Gi ControllerResizeInProgress",
			size:  "1Gi",
		},
		{name: "a size that is allocated, and not more", claim: claimWith("1Gi", "2Gi", ""), shows: "1Gi", size: "1Gi"},
		{
			name:  "an infeasible size",
			claim: claimWith("1Gi", "2Gi", infeasible),
			shows: "1Gi NodeResizeInfeasible",
			size:  "1Gi",
		},
		{
			name:   "a controller that notes nothing",
			claim:  claimWith("1Gi", "", ""),
			sizes:  "2Gi",
			shows:  "2Gi",
			events: succeeded,
			size:   "2Gi",
		},
		{
			name:  "that, without a driver for it",
			claim: claimWith("1Gi", "", ""),
			err:   &ExpandError{Unsupported, fails},
			sizes: "2Gi",
			shows: "1Gi",
			size:  "2Gi",
		},
		{
			name:  "that, in use",
			claim: claimWith("1Gi", "", ""),
			err:   &ExpandError{InUse, fails},
			sizes: "2Gi",
			shows: "1Gi",
			size:  "1Gi",
			stuck: true,
		},
		{
			name:   "that, and a failure",
			claim:  claimWith("1Gi", "", ""),
			err:    fails,
			sizes:  "2Gi",
			shows:  "1Gi",
			size:   "1Gi",
			fails:  `MountVolume.Setup failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMount",
		},
		{
			name:     "read-only",
			claim:    claimWith("1Gi", "2Gi", pending),
			readOnly: true,
			shows:    "1Gi NodeResizePending",
			size:     "0",
			events: both(
				`Warning FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "pv" requested read-only file ` +
					`system`),
		},
		{name: "read-only and large enough", claim: claimWith("2Gi", "2Gi", ""), readOnly: true, shows: "2Gi", size: "0"},
		{
			name:   "a failure",
			claim:  claimWith("1Gi", "2Gi", pending),
			err:    fails,
			sizes:  "2Gi",
			size:   "1Gi",
			failed: true,
			shows:  "1Gi NodeResizeInProgress NodeResizeError=True(failed to expand pvc with no space)",
			fails:  `MountVolume.Setup failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMount",
		},
		{
			name:   "a failure of a device",
			claim:  claimWith("1Gi", "2Gi", pending),
			block:  true,
			err:    fails,
			sizes:  "2Gi",
			size:   "1Gi",
			failed: true,
			shows:  "1Gi NodeResizeInProgress NodeResizeError=True(failed to expand pvc with no space)",
			fails:  `MapVolume.MarkVolumeAsMounted failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMapVolume",
		},
		{
			name:   "a failure for good",
			claim:  claimWith("1Gi", "2Gi", pending),
			err:    &ExpandError{Infeasible, fails},
			sizes:  "2Gi",
			size:   "1Gi",
			failed: true,
			shows:  "1Gi NodeResizeInfeasible NodeResizeError=True(failed to expand pvc with no space)",
			fails:  `MountVolume.Setup failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMount",
		},
		{
			name:   "a second failure",
			claim:  claimWith("1Gi", "2Gi", inProgress),
			has:    growth{failed: true},
			err:    fails,
			sizes:  "2Gi",
			size:   "1Gi",
			failed: true,
			shows:  "1Gi NodeResizeInProgress NodeResizeError=True(failed to expand pvc with no space)",
			fails:  `MountVolume.Setup failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMount",
		},
		{
			name:   "a second failure, of a size that is no longer requested",
			claim:  claimWith("1Gi", "3Gi", inProgress),
			has:    growth{failed: true},
			err:    fails,
			sizes:  "3Gi",
			size:   "1Gi",
			failed: true,
			shows:  "1Gi NodeResizeInfeasible NodeResizeError=True(failed to expand pvc with no space)",
			fails:  `MountVolume.Setup failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMount",
		},
		{
			name:   "an unavailable plugin",
			claim:  claimWith("1Gi", "2Gi", pending),
			err:    &ExpandError{Unavailable, fails},
			sizes:  "2Gi",
			shows:  "1Gi NodeResizeInProgress",
			size:   "1Gi",
			fails:  `MountVolume.Setup failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMount",
		},
		{
			name:   "a driver without expansion on nodes",
			claim:  claimWith("1Gi", "2Gi", pending),
			err:    &ExpandError{Unsupported, fails},
			sizes:  "2Gi",
			size:   "1Gi",
			failed: true,
			shows:  "1Gi NodeResizeInProgress NodeResizeError=True(failed to expand pvc with no space)",
			fails:  `MountVolume.Setup failed while expanding volume for volume "pv" : no space`,
			reason: "FailedMount",
		},
		{
			name:   "a volume that must not be in use",
			claim:  claimWith("1Gi", "2Gi", pending),
			err:    &ExpandError{InUse, fails},
			sizes:  "2Gi",
			size:   "1Gi",
			failed: true,
			stuck:  true,
			shows:  "1Gi NodeResizeInProgress NodeResizeError=True(failed to expand pvc with no space)",
		},
		{
			name:   "a claim that cannot be written",
			claim:  claimWith("1Gi", "2Gi", pending),
			refuse: true,
			shows:  "1Gi NodeResizePending",
			size:   "1Gi",
			fails: `MountVolume.Setup failed while expanding volume for volume "pv" : patchPVCStatus failed to patch PVC ` +
				`"c": no`,
			reason: "FailedMount",
		},
		{
			name:   "a claim that cannot be written in the end",
			claim:  claimWith("1Gi", "2Gi", inProgress),
			refuse: true,
			sizes:  "2Gi",
			shows:  "1Gi NodeResizeInProgress",
			size:   "1Gi",
			events: succeeded,
			fails: `MountVolume.Setup failed while expanding volume for volume "pv" : mountVolume.NodeExpandVolume update ` +
				`pvc status failed: patchPVCStatus failed to patch PVC "c": no`,
			reason: "FailedMount",
		},

		{
			name:   "in use: the node's turn",
			inUse:  true,
			claim:  claimWith("1Gi", "2Gi", pending),
			sizes:  "2Gi",
			shows:  "2Gi",
			events: succeeded,
			size:   "2Gi",
		},
		{
			name:  "in use: done already",
			inUse: true,
			claim: claimWith("2Gi", "2Gi", ""),
			has:   growth{size: resource.MustParse("2Gi")},
			shows: "2Gi",
			size:  "2Gi",
		},
		{
			name:  "in use: done by the controller",
			inUse: true,
			claim: claimWith("2Gi", "2Gi", ""),
			has:   growth{size: resource.MustParse("1Gi")},
			shows: "2Gi",
			size:  "2Gi",
		},
		{
			name:   "in use on many nodes, done by another one",
			inUse:  true,
			claim:  claimWith("2Gi", "2Gi", "", many),
			has:    growth{size: resource.MustParse("1Gi")},
			sizes:  "2Gi",
			shows:  "2Gi",
			events: succeeded,
			size:   "2Gi",
		},
		{
			name:  "in use on many nodes, without a driver for it",
			inUse: true,
			claim: claimWith("2Gi", "2Gi", "", many),
			has:   growth{size: resource.MustParse("1Gi")},
			err:   &ExpandError{Unsupported, fails},
			sizes: "2Gi",
			shows: "2Gi",
			size:  "2Gi",
		},
		{
			name:  "in use on many nodes that need not expand",
			inUse: true,
			claim: func() *v1.PersistentVolumeClaim {
				c := claimWith("2Gi", "2Gi", "", many)
				c.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": "true"}
				return c
			}(),
			has:   growth{size: resource.MustParse("1Gi")},
			shows: "2Gi",
			size:  "2Gi",
		},
		{
			name:   "in use: a failure",
			inUse:  true,
			claim:  claimWith("1Gi", "2Gi", pending),
			err:    fails,
			sizes:  "2Gi",
			size:   "1Gi",
			failed: true,
			shows:  "1Gi NodeResizeInProgress NodeResizeError=True(failed to expand pvc with no space)",
			fails:  `NodeExpandVolume.NodeExpandVolume failed for volume "pv" : no space`,
			reason: "VolumeResizeFailed",
		},
		{
			name:  "in use: refused for that before",
			inUse: true,
			claim: claimWith("1Gi", "2Gi", inProgress),
			has:   growth{inUse: true},
			shows: "1Gi NodeResizeInProgress",
			size:  "1Gi",
			stuck: true,
		},
		{
			name:     "in use: read-only",
			inUse:    true,
			readOnly: true,
			claim:    claimWith("1Gi", "2Gi", pending),
			shows:    "1Gi NodeResizePending",
			size:     "0",
		},
		{
			name:  "in use: the size is unknown",
			inUse: true,
			claim: claimWith("0", "2Gi", pending),
			shows: "0 NodeResizePending",
			size:  "0",
		},
		{
			name:   "in use: a controller that notes nothing, done on another node",
			inUse:  true,
			claim:  claimWith("2Gi", "", ""),
			has:    growth{size: resource.MustParse("1Gi")},
			sizes:  "2Gi",
			shows:  "2Gi",
			events: succeeded,
			size:   "2Gi",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &growing{claim: c.claim, err: c.err, refuse: c.refuse}
			v := New(Config{API: g, Events: &g.events, ClaimEvent: g.ofClaim, Log: slog.New(slog.DiscardHandler)})
			r := Request{
				Spec: Spec{
					Name:     "pv",
					Claim:    c.claim,
					ReadOnly: c.readOnly,
					Block:    c.block,
					PV:       &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{Capacity: storage("2Gi")}},
				},
				Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{NodeName: "n1"}},
			}
			if c.noClaim {
				r.Claim = nil
			}
			d := &device{growth: c.has}
			step := v.expandAtMount
			if c.inUse {
				step = func(ctx context.Context, plugin Plugin, d *device, r Request) error {
					_, err := v.expandInUse(ctx, plugin, d, r)
					return err
				}
			}
			err := step(t.Context(), g, d, r)
			logged := ""
			if err != nil {
				logged = err.Error()
			}
			if logged != c.fails {
				t.Errorf("error %q, want %q", logged, c.fails)
			}
			var named *volume.Failure
			if errors.As(err, &named) && named.Reason != c.reason {
				t.Errorf("reason %s, want %s", named.Reason, c.reason)
			}
			if got := strings.Join(g.sizes, " "); got != c.sizes {
				t.Errorf("expanded to %q, want %q", got, c.sizes)
			}
			if got := shown(g.claim); got != c.shows {
				t.Errorf("the claim shows\n%s, want\n%s", got, c.shows)
			}
			if got := g.events.Lines(); !slices.Equal(got, c.events) {
				t.Errorf("events %q, want %q", got, c.events)
			}
			if got := d.growth.size.String(); got != c.size || d.growth.inUse != c.stuck ||
				d.growth.failed != c.failed {
				t.Errorf("the node knows %s, %+v", got, d.growth)
			}
		})
	}
}

// An existing reason in the claim is kept, with its time.
func TestResizeConditionKeepsFirstReason(t *testing.T) {
	c := claimWith("1Gi", "2Gi", "NodeResizeInProgress")
	failing(errors.New("one"), false)(c)
	failing(errors.New("two"), true)(c)
	if got := shown(c); got != "1Gi NodeResizeInfeasible NodeResizeError=True(failed to expand pvc with one)" {
		t.Errorf("the claim shows %s", got)
	}
	c.Status.Conditions[0].Status = v1.ConditionFalse
	failing(errors.New("three"), false)(c)
	if got := shown(c); got != "1Gi NodeResizeInfeasible NodeResizeError=True(failed to expand pvc with three)" {
		t.Errorf("the claim shows %s", got)
	}
}
