package pod

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// Hash is a hash over the part of a container's specification whose change restarts it:
// name and image. It is an annotation of the container, so a different algorithm would
// restart every container.
func Hash(c *v1.Container) string {
	// json sorts the keys of a map; marshalling two strings cannot fail.
	b, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		panic(err)
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(b))
	return fmt.Sprintf("%x", h.Sum32())
}
