package status

import (
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// maxMessages is how many bytes the containers of a pod may say together as they
// end. Each has the same share of it.
const maxMessages = 12 << 10

// shareMessages cuts termination messages to what is a container's share.
func shareMessages(st *v1.PodStatus) {
	lists := [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses}
	count := 0
	for _, list := range lists {
		count += len(list)
	}
	for _, list := range lists {
		for i := range list {
			for _, ended := range []**v1.ContainerStateTerminated{&list[i].State.Terminated, &list[i].LastTerminationState.Terminated} {
				if *ended != nil && len((*ended).Message) > maxMessages/count {
					cut := **ended // it may be shared with what was shown before
					cut.Message = start(cut.Message, maxMessages/count)
					*ended = &cut
				}
			}
		}
	}
}

// start is the beginning of s, of n bytes at most and without half a character.
func start(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
