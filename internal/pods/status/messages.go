package status

import (
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// maxMessages is the total size in bytes of the termination messages of a pod. Each
// container has an equal share.
const maxMessages = 12 << 10

// shareMessages truncates termination messages to a container's share.
func shareMessages(st *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses}
	count := 0
	for _, list := range lists {
		count += len(list)
	}
	for _, list := range lists {
		for i := range list {
			for _, ended := range []**v1.ContainerStateTerminated{
				&list[i].State.Terminated,
				&list[i].LastTerminationState.Terminated,
			} {
				if *ended != nil && len((*ended).Message) > maxMessages/count {
					cut := **ended // it may be shared with the previous status
					cut.Message = start(cut.Message, maxMessages/count)
					*ended = &cut
				}
			}
		}
	}
}

// start is the beginning of s, at most n bytes of whole characters.
func start(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
