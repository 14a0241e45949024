package checkpoint

import (
	"encoding/json"
	"fmt"

	"keelson/internal/host/checkpoint"
)

// The checksum covers the Go names of the types, including the name of this package. So all these names, and the names
// and the order of the fields, are the same as upstream's.
type (
	// checkpointData is the data of the checkpoint.
	checkpointData struct {
		PodDeviceEntries  []PodDevicesEntry
		RegisteredDevices map[string][]string
	}
	// PodDevicesEntry are the devices of one resource that are allocated to one container.
	PodDevicesEntry struct {
		PodUID        string
		ContainerName string
		ResourceName  string
		DeviceIDs     DevicesPerNUMA
		AllocResp     []byte // the plugin's answer, a ContainerAllocateResponse
	}
	// DevicesPerNUMA are the IDs of devices by NUMA node. Devices without a known node are under -1.
	DevicesPerNUMA map[int64][]string
)

type devicesFile struct {
	Data     checkpointData
	Checksum uint64
}

// EncodeDevices encodes the checkpoint: the allocated devices, and the IDs of all devices of each resource.
func EncodeDevices(held []PodDevicesEntry, there map[string][]string) ([]byte, error) {
	f := devicesFile{Data: checkpointData{held, there}}
	f.Checksum = checkpoint.Sum(f.Data)
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode devices: %w", err)
	}
	return b, nil
}

// DecodeDevices decodes the checkpoint.
func DecodeDevices(content []byte) (held []PodDevicesEntry, there map[string][]string, err error) {
	var f devicesFile
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, nil, fmt.Errorf("decode devices: %w", err)
	}
	if sum := checkpoint.Sum(f.Data); sum != f.Checksum {
		return nil, nil, fmt.Errorf("decode devices: the checksum is %d, the file says %d", sum, f.Checksum)
	}
	return f.Data.PodDeviceEntries, f.Data.RegisteredDevices, nil
}
