package persistent

import (
	"errors"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// Step is upstream's name of a step, for a file system volume and a block volume.
type Step struct{ mount, mapped string }

// Steps that plugins report failures of. Other errors are failures of staging and publishing.
var (
	StepInit   = Step{"MountVolume.NewMounter initialization", "MapVolume.NewBlockVolumeMapper initialization"}
	StepAttach = Step{"MountVolume.WaitForAttach", "MapVolume.WaitForAttach"}
)

var (
	stepAffinity = Step{"MountVolume.NodeAffinity check", "MapVolume.NodeAffinity check"}
	stepOptions  = Step{"MountVolume.MountOptionSupport check", ""} // file system volumes only
	stepOnePod   = Step{"MountVolume.SetUp", "MapVolume.SetUpDevice"}
	stepStage    = Step{"MountVolume.MountDevice", "MapVolume.SetUpDevice"}
	stepMount    = Step{"MountVolume.SetUp", "MapVolume.MapPodDevice"}
	stepFollow   = Step{"", "MapVolume.EvalHostSymlinks"} // block volumes only
	stepMap      = Step{"", "MapVolume.MapBlockVolume"}   // block volumes only
)

const stepAttach = "AttachVolume.Attach"

// of returns the step's name for this volume.
func (s Step) of(r Request) string {
	if r.Block {
		return s.mapped
	}
	return s.mount
}

// Failed wraps an error with the step that failed, unless it names one already.
func Failed(r Request, s Step, err error) error {
	var named *volume.Failure
	if err == nil || errors.As(err, &named) {
		return err
	}
	f := &volume.Failure{
		Step:   s.of(r),
		Volume: r.Name,
		Reason: pod.EventFailedMount,
		Err:    err,
	}
	if r.Block {
		f.Reason = pod.EventFailedMapVolume
	}
	return f
}
