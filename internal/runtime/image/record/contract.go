package record

import (
	"crypto/sha256"
	"encoding/hex"
)

// Location of the files below the root directory.
const (
	Dir        = "image_manager"
	pullingDir = "pulling"
	pulledDir  = "pulled"
)

const (
	group      = "kubelet.config.k8s.io"
	apiVersion = group + "/v1beta1" // the version that is written; v1alpha1 has the same fields
	intentKind = "ImagePullIntent"
	recordKind = "ImagePulledRecord"
)

// fileName returns the file name for an image name or reference.
func fileName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Results of [Store.MustPull], as its metric counts them.
const (
	resultPolicy = "credentialPolicyAllowed"
	resultRecord = "credentialRecordFound"
	resultPull   = "mustAuthenticate"
	resultError  = "error"
)
