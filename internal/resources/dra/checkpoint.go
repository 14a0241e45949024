package dra

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// Kind and version of the checkpoint.
const (
	claimsKind    = "DRACheckpoint"
	claimsVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

type (
	// claimRecord is a ResourceClaim that drivers have prepared, or are about to prepare.
	claimRecord struct {
		ClaimUID    string
		ClaimName   string
		Namespace   string
		PodUIDs     map[string]struct{}
		DriverState map[string]driverRecord
	}
	// driverRecord is what one driver answered for a claim. Without a list of devices the driver has not answered yet.
	driverRecord struct{ Devices []deviceRecord }
	// deviceRecord is an allocated device of a claim.
	deviceRecord struct {
		PoolName     string
		DeviceName   string
		ShareID      *string
		RequestNames []string
		CDIDeviceIDs []string
	}
)

type claimsData struct {
	Kind               string        `json:"kind"`
	APIVersion         string        `json:"apiVersion"`
	ClaimInfoStateList []claimRecord `json:"ClaimInfoStateList"`
}

type claimsFile struct {
	Data     string
	Checksum uint64
}

// encodeClaims encodes the checkpoint.
func encodeClaims(list []claimRecord) ([]byte, error) {
	data, err := json.Marshal(claimsData{claimsKind, claimsVersion, list})
	if err != nil {
		return nil, fmt.Errorf("encode claims: %w", err)
	}
	b, err := json.Marshal(claimsFile{string(data), uint64(crc32.ChecksumIEEE(data))})
	if err != nil {
		return nil, fmt.Errorf("encode claims: %w", err)
	}
	return b, nil
}

// decodeClaims decodes the checkpoint.
func decodeClaims(content []byte) ([]claimRecord, error) {
	var f claimsFile
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, fmt.Errorf("decode claims: %w", err)
	}
	if sum := uint64(crc32.ChecksumIEEE([]byte(f.Data))); sum != f.Checksum {
		return nil, fmt.Errorf("decode claims: the checksum is %d, the file says %d", sum, f.Checksum)
	}
	var d claimsData
	if err := json.Unmarshal([]byte(f.Data), &d); err != nil {
		return nil, fmt.Errorf("decode claims: %w", err)
	}
	if d.Kind != claimsKind || d.APIVersion != claimsVersion {
		return nil, fmt.Errorf("decode claims: it is a %q of %q, not a %q of %q", d.Kind, d.APIVersion, claimsKind,
			claimsVersion)
	}
	return d.ClaimInfoStateList, nil
}
