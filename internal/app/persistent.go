package app

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/apiclient"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume/persistent"
)

// buildPersistent builds what brings volumes to the node that outlive pods. A new
// plugin is an entry of the list.
func (a *agent) buildPersistent(guard *mount.Guard) {
	k := &a.cfg.Kubelet
	cfg := persistent.Config{RootDir: a.cfg.Flags.RootDir, Guard: guard, Events: a.events, Log: a.log,
		Plugins: []persistent.Plugin{},
		Node:    func() v1.NodeStatus { return a.node.Node().Status },
		Attach:  *k.EnableControllerAttachDetach,
		Recheck: k.SyncFrequency.Duration,
		OnInUse: func() { a.node.Poke() },
		Again:   func(uid types.UID) { a.volumes.Again(uid) },
	}
	if a.api != nil {
		cfg.API = claims{a.api}
	}
	a.lasting = persistent.New(cfg)
}

// claims are claims and their volumes at the API server.
type claims struct{ api *apiclient.Client }

func (c claims) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return c.api.PersistentVolumeClaims.Get(ctx, namespace, name)
}

func (c claims) Volume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return c.api.PersistentVolumes.Get(ctx, "", name)
}

func (c claims) PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error) {
	return c.api.PersistentVolumeClaims.Patch(ctx, namespace, name, types.StrategicMergePatchType, patch, "status")
}
