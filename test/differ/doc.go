// Package differ has two agents, ours and upstream's own binary, live the same generated
// histories, each as its own node of one real cluster with the real controller manager, and
// reports everything in which they differ.
//
//	make differ SEED=7 N=300        three histories of 100 pods, from seeds 7, 8 and 9
//	make differ SEED=7 N=100 LIFE=12,17   two pods of the first history alone
//	make differ KEEP=lives             each life that differs, with what both sides did, in a file
//	make differ-real SEED=7 N=40      two histories of 20 pods on containerd
//
// A History is 100 lives (life.go) and what happens to the whole node between their acts. A
// Life is a pod, the objects it refers to, what its containers do (programs of the fake
// runtime's shell, one for each attempt) and what happens to it: steps, in acts. A seed draws
// a history (draw*.go); the same seed draws the same one.
//
// A Stage (stage.go) is two rigs, one of which has the cluster, with a fake runtime each. The
// same pod is created twice, in the namespace of each side, under the same name and bound to
// the side's node. A step is taken on both sides, then the life waits until both sides are at
// rest (rest.go): nothing is timed, and a slow machine makes a history longer, not different (clock.go).
//
// On containerd each side has a containerd of its own behind a proxy that records its calls
// (containerd.go). Real are sandboxes and their addresses, processes, signals and exit codes, mounts,
// cgroups, images, the output of commands, containerd's own events and errors, and how it comes back
// after it was killed. Programs run in the image's shell, hooks and some probes in the container; a
// container is ended by a signal to its program and a sandbox by killing its pause process. Shims and
// addresses are looked for among what is left in the end.
//
// Only the fake runtime can lose events, fail or delay calls, run out of memory and serve images to pull;
// on it alone network probes and HTTP hooks are answered. Lives on containerd have none of these, and pods
// of fewer features (drawreal.go): no user namespaces, namespaces of the host but its network, resources
// of the pod as a whole, deadlines, ports and subPathExpr. Which of a pod's processes gets how much of the
// processor is not compared, and what the network carries is not either.
//
// Network probes and HTTP hooks are answered by the stage itself (server.go), at the addresses
// of the pods. An agent's connection to the API server can be cut (link.go), its node tainted
// and cordoned (nodes.go), and its disk filled (disk.go).
//
// What is compared (compare.go), after ids, times, and names of the sides are replaced
// (normal.go): the pod at every rest, all that its statuses ever showed, the requests to the
// runtime, the order of calls that did not overlap, events, the files below the pod's
// directory, and what is left in the end.
//
// A Difference has a signature, by which differences of one cause are grouped. Differences on
// purpose have a Rule (rules.go), which names the decision or the reason; a rule that matched
// nothing is reported. What is left is lived again: a difference that does not show again is
// reported as unsteady. One that does is shrunk (shrink.go): parts of the pod and steps are
// left out as long as it shows.
//
// Lock order: none; track.mu is a leaf.
package differ
