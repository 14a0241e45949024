// Package differ runs two agents, ours and upstream's own binary, through the same generated
// histories, each as its own node of one real cluster with the real controller manager, and
// reports everything in which they differ.
//
//	make differ SEED=7 N=300        three histories of 100 pods, from seeds 7, 8 and 9
//	make differ SEED=7 N=100 LIFE=12,17   two pods of the first history alone
//	make differ KEEP=lives             write a file for each life that differs, with what both sides did
//	make differ-real SEED=7 N=40      two histories of 20 pods on containerd
//
// A History is 100 lives (life.go) and what happens to the whole node between their acts. A
// Life is a pod, the objects it refers to, the programs of its containers (for the fake
// runtime's shell, one for each attempt) and the steps that are taken, such as a deletion.
// Steps are grouped in acts. A history is generated from a seed (draw*.go); the same seed
// gives the same history.
//
// A Stage (stage.go) is two rigs, one of which has the cluster, with a fake runtime each. The
// same pod is created twice, in the namespace of each side, under the same name and bound to
// the side's node. A step is taken on both sides, then the life waits until both sides are at
// rest (rest.go). Steps have no fixed times, so a slow machine makes a history longer, not
// different (clock.go).
//
// On containerd each side has a containerd of its own behind a proxy that records its calls
// (containerd.go). Sandboxes and their addresses, processes, signals and exit codes, mounts, cgroups,
// images, the output of commands, containerd's events and errors, and its restart after it was killed
// are real. Programs run in the image's shell, hooks and some probes in the container; a container is
// ended by a signal to its program and a sandbox by killing its pause process. Leftovers include shims
// and addresses.
//
// Only the fake runtime can lose events, fail or delay calls, run out of memory, serve images to pull,
// and have network probes and HTTP hooks answered. Lives on containerd have none of these, and their pods
// have fewer features (drawreal.go): no user namespaces, no namespaces of the host but its network, no
// pod-level resources, deadlines, ports and subPathExpr. The CPU shares of processes and the traffic on
// the network are not compared.
//
// Network probes and HTTP hooks are answered by the stage itself (server.go), at the addresses
// of the pods. An agent's connection to the API server can be cut (link.go), its node tainted
// and cordoned (nodes.go), and its disk filled (disk.go).
//
// What is compared (compare.go), after ids, times, and names of the sides are replaced
// (normal.go): the pod at every rest, all parts of its statuses that were ever published, the
// requests to the runtime, the order of calls that did not overlap, events, the files below the
// pod's directory, and leftovers.
//
// A Difference has a signature, by which differences of one cause are grouped. Differences on
// purpose have a Rule (rules.go), which names the decision or the reason; a rule that matched
// nothing is reported. The lives of the other differences are run again. A difference that does
// not show again is reported as unsteady. One that shows again is shrunk (shrink.go): parts of
// the pod and steps are left out as long as it shows.
//
// Lock order: none; track.mu is a leaf.
package differ
