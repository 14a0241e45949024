package userns

// file is the name of the record in the pod's directory.
const file = "userns"

// DefaultIDs is the default number of IDs per pod.
const DefaultIDs = 65536

// record is the format of the file.
type record struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}
