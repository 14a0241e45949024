package app

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/podsapi"
)

// buildPodsAPI prepares what tells programs of the node about its pods, where the
// gate is on.
func (a *agent) buildPodsAPI() {
	if !a.cfg.Gates.Enabled("PodsAPI") {
		return
	}
	a.podsAPI = podsapi.New(podsapi.Config{Socket: filepath.Join(a.cfg.Flags.RootDir, podsapi.Socket), Log: a.log,
		Pods: func() []*v1.Pod { return podView{a}.Pods() },
		Pod: func(uid types.UID) (*v1.Pod, bool) {
			spec, _, known := a.desired.Get(uid)
			if !known || spec == nil {
				return nil, false
			}
			return podView{a}.withStatus(spec), true
		}})
	a.metrics.MustRegister(a.podsAPI)
}

// tellOfPod tells watchers that a pod came, changed or went. It does not block.
func (a *agent) tellOfPod(uid types.UID) {
	if a.podsAPI != nil {
		a.podsAPI.Changed(uid)
	}
}
