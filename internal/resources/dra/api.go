package dra

import (
	"context"

	"keelson/internal/api/client"
)

// NewAPI returns an API that reads claims from the API server.
func NewAPI(c *client.Client) API { return claimReader{c} }

type claimReader struct{ client *client.Client }

func (r claimReader) Claim(ctx context.Context, namespace, name string) (*Object, error) {
	claim, err := r.client.ResourceClaim(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	out := &Object{ObjectMeta: claim.ObjectMeta}
	for _, p := range claim.Status.ReservedFor {
		out.ReservedFor = append(out.ReservedFor, p.UID)
	}
	if chosen := claim.Status.Allocation; chosen != nil {
		out.Allocated = true
		for _, r := range chosen.Devices.Results {
			out.Drivers = append(out.Drivers, r.Driver)
		}
	}
	return out, nil
}
