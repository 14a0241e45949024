package checkpoint

import (
	"encoding/json"
	"fmt"
)

// The checksum of the record of devices is over its values as they print, names of
// types and their package included: these are upstream's, and so are the names and
// the order of the fields.
type (
	// checkpointData is what the record says.
	checkpointData struct {
		PodDeviceEntries  []PodDevicesEntry
		RegisteredDevices map[string][]string
	}
	// PodDevicesEntry is what one container has been given of one resource.
	PodDevicesEntry struct {
		PodUID        string
		ContainerName string
		ResourceName  string
		DeviceIDs     DevicesPerNUMA
		AllocResp     []byte // the plugin's answer, a ContainerAllocateResponse
	}
	// DevicesPerNUMA are IDs of devices by the NUMA node they are at; those of which
	// none is known are under -1.
	DevicesPerNUMA map[int64][]string
)

type devicesFile struct {
	Data     checkpointData
	Checksum uint64
}

// EncodeDevices makes the record of devices: who has which, and which there are of
// each resource.
func EncodeDevices(held []PodDevicesEntry, there map[string][]string) ([]byte, error) {
	f := devicesFile{Data: checkpointData{held, there}}
	f.Checksum = Sum(f.Data)
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode devices: %w", err)
	}
	return b, nil
}

// DecodeDevices reads the record of devices.
func DecodeDevices(content []byte) (held []PodDevicesEntry, there map[string][]string, err error) {
	var f devicesFile
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, nil, fmt.Errorf("decode devices: %w", err)
	}
	if sum := Sum(f.Data); sum != f.Checksum {
		return nil, nil, fmt.Errorf("decode devices: the checksum is %d, the file says %d", sum, f.Checksum)
	}
	return f.Data.PodDeviceEntries, f.Data.RegisteredDevices, nil
}
