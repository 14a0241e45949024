package record

import (
	"crypto/sha256"
	"encoding/hex"
)

// Where the files are, below the agent's root directory.
const (
	Dir        = "image_manager"
	pullingDir = "pulling"
	pulledDir  = "pulled"
)

const (
	group      = "kubelet.config.k8s.io"
	apiVersion = group + "/v1beta1" // written; v1alpha1 reads the same
	intentKind = "ImagePullIntent"
	recordKind = "ImagePulledRecord"
)

// fileName is the file for an image's name or reference.
func fileName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Answers of [Store.MustPull], as its metric counts them.
const (
	resultPolicy = "credentialPolicyAllowed"
	resultRecord = "credentialRecordFound"
	resultPull   = "mustAuthenticate"
	resultError  = "error"
)
