package csidriver

import (
	"context"
	"errors"
	"os"
	"strconv"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type identity struct {
	csi.UnimplementedIdentityServer
	driver *Driver
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.driver.cfg.Name, VendorVersion: "1"}, nil
}

func (i *identity) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{
		Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}}},
	}, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

type controller struct {
	csi.UnimplementedControllerServer
	driver *Driver
}

func (c *controller) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{
			Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{
				Rpc: &csi.ControllerServiceCapability_RPC{
					Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
				}}}},
		},
		nil
}

// CreateVolume makes a volume whose name is its identity.
func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := need("name", r.Name); err != nil {
		return nil, err
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume capabilities are missing")
	}
	data := c.driver.Data(r.Name)
	size := r.CapacityRange.GetRequiredBytes()
	if old, err := os.ReadFile(data + ".size"); err == nil && string(old) != strconv.FormatInt(size, 10) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists with %s bytes", r.Name, old)
	}
	err := os.MkdirAll(data, 0o777)
	if err == nil {
		err = os.WriteFile(data+".size", []byte(strconv.FormatInt(size, 10)), 0o600)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:      r.Name,
		CapacityBytes: size,
		VolumeContext: r.Parameters,
	}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := need("volume id", r.VolumeId); err != nil {
		return nil, err
	}
	data := c.driver.Data(r.VolumeId)
	if err := errors.Join(os.RemoveAll(data), os.RemoveAll(data+".size"), os.RemoveAll(data+".img")); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(
	_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := need("volume id", r.VolumeId); err != nil {
		return nil, err
	}
	if len(r.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume capabilities are missing")
	}
	if _, err := (&node{driver: c.driver}).known(r.VolumeId); err != nil {
		return nil, err
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.VolumeCapabilities},
	}, nil
}
