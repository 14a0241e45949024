package csi

import (
	"context"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"keelson/internal/api/client"
	"keelson/internal/api/watch"
)

// NewAPI returns an API that reads CSIDriver objects from a watch, and other objects with single requests.
func NewAPI(c *client.Client, drivers *watch.Lazy[*storagev1.CSIDriver]) API {
	return objects{c, drivers}
}

type objects struct {
	api     *client.Client
	drivers *watch.Lazy[*storagev1.CSIDriver]
}

func (o objects) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return o.drivers.Get(ctx, name)
}

func (o objects) VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return o.api.VolumeAttachments.Get(ctx, "", name)
}

func (o objects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return o.api.Secrets.Get(ctx, namespace, name)
}
