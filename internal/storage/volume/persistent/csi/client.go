package csi

import (
	"context"
	"fmt"
	"strings"
	"time"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"keelson/internal/storage/volume/persistent"
)

// session is a connection to a driver for the calls of one step. There is no connection between
// steps, so a restarted driver needs no handling.
type session struct {
	*driver
	conn *grpc.ClientConn
	node csiv1.NodeClient
}

// open connects to a driver.
func (t *Drivers) open(name string) (*session, error) { return t.openFor(name, false) }

// openFor connects to a driver for a volume. Calls for migrated volumes have another label in
// metrics.
func (t *Drivers) openFor(name string, migrated bool) (*session, error) {
	d, err := t.find(name)
	if err != nil {
		return nil, err
	}
	return t.connect(d, migrated)
}

func (t *Drivers) connect(d *driver, migrated bool) (*session, error) {
	conn, err := grpc.NewClient("unix://"+d.endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(
			func(
				ctx context.Context, method string, req, reply any,
				conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
			) error {
				ctx, stop := context.WithTimeout(ctx, callLimit)
				defer stop()
				began := time.Now()
				err := call(ctx, method, req, reply, conn, opts...)
				t.observe(
					d.name,
					method[strings.LastIndexByte(method, '/')+1:],
					status.Code(err).String(),
					migrated,
					time.Since(began),
				)
				return err
			}))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %s: %w", d.name, err)
	}
	return &session{d, conn, csiv1.NewNodeClient(conn)}, nil
}

func (s *session) close() { s.conn.Close() }

// nodeInfo calls NodeGetInfo.
func (t *Drivers) nodeInfo(ctx context.Context, d *driver) (NodeInfo, error) {
	s, err := t.connect(d, false)
	if err != nil {
		return NodeInfo{}, err
	}
	defer s.close()
	got, err := s.node.NodeGetInfo(ctx, &csiv1.NodeGetInfoRequest{})
	if err != nil {
		return NodeInfo{}, fmt.Errorf("error during CSI NodeGetInfo() call: %w", err)
	}
	if got.NodeId == "" {
		return NodeInfo{}, fmt.Errorf("error during CSI NodeGetInfo() call: driver %s returned an empty node ID", d.name)
	}
	info := NodeInfo{Driver: d.name, NodeID: got.NodeId, Max: got.MaxVolumesPerNode}
	if got.AccessibleTopology != nil {
		info.Topology = map[string]string{}
		for k, v := range got.AccessibleTopology.Segments {
			info.Topology[k] = v
		}
	}
	return info, nil
}

// can reports whether the driver's node service has a capability. Capabilities are cached, since a
// changed driver registers again.
func (s *session) can(ctx context.Context, what csiv1.NodeServiceCapability_RPC_Type) (bool, error) {
	s.mu.Lock()
	caps := s.caps
	s.mu.Unlock()
	if caps == nil {
		got, err := s.node.NodeGetCapabilities(ctx, &csiv1.NodeGetCapabilitiesRequest{})
		if err != nil {
			return false, err
		}
		caps = map[csiv1.NodeServiceCapability_RPC_Type]bool{}
		for _, c := range got.Capabilities {
			caps[c.GetRpc().GetType()] = true
		}
		s.mu.Lock()
		s.caps = caps
		s.mu.Unlock()
	}
	return caps[what], nil
}

// Capabilities of the node service.
const (
	canStage       = csiv1.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	canExpand      = csiv1.NodeServiceCapability_RPC_EXPAND_VOLUME
	canStat        = csiv1.NodeServiceCapability_RPC_GET_VOLUME_STATS
	canCondition   = csiv1.NodeServiceCapability_RPC_VOLUME_CONDITION
	canGroup       = csiv1.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	canMultiWriter = csiv1.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER
)

// failed wraps an error with the step that failed, in upstream's words.
func failed(what string, err error) error { return fmt.Errorf("%s: %s: %w", PluginName, what, err) }

// markUnknown marks an error as Unknown if its code does not show whether the call had an effect, or
// whether the driver is still working on it.
func markUnknown(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err // the call was not made
	}
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return persistent.Unknown(err)
	}
	return err
}

// infeasible reports whether the call can never succeed.
func infeasible(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return true
	}
	return false
}
