package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// Names of the kind that the record of claims says it is.
const (
	claimsKind    = "DRACheckpoint"
	claimsVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

type (
	// Claim is a claim of resources that drivers have prepared, or were to.
	Claim struct {
		ClaimUID    string
		ClaimName   string
		Namespace   string
		PodUIDs     map[string]struct{}
		DriverState map[string]ClaimDriver
	}
	// ClaimDriver is what one driver has made of a claim. Without a list of devices it
	// has yet to answer.
	ClaimDriver struct{ Devices []ClaimDevice }
	// ClaimDevice is a device of a claim.
	ClaimDevice struct {
		PoolName     string
		DeviceName   string
		ShareID      *string
		RequestNames []string
		CDIDeviceIDs []string
	}
)

type claimsData struct {
	Kind               string  `json:"kind"`
	APIVersion         string  `json:"apiVersion"`
	ClaimInfoStateList []Claim `json:"ClaimInfoStateList"`
}

type claimsFile struct {
	Data     string
	Checksum uint64
}

// EncodeClaims makes the record of claims.
func EncodeClaims(list []Claim) ([]byte, error) {
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

// DecodeClaims reads the record of claims.
func DecodeClaims(content []byte) ([]Claim, error) {
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
		return nil, fmt.Errorf("decode claims: it is a %q of %q, not a %q of %q", d.Kind, d.APIVersion, claimsKind, claimsVersion)
	}
	return d.ClaimInfoStateList, nil
}
