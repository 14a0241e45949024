package userns

// file is the name of a pod's record, below its directory.
const file = "userns"

// DefaultIDs is how many IDs a pod gets where the configuration does not say.
const DefaultIDs = 65536

// record is what the file holds.
type record struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}
