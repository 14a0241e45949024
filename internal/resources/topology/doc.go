// Package topology is the topology manager: it aligns the resources that are allocated exclusively to containers, which
// are whole CPUs, memory of NUMA nodes and devices. The manager of each of these is a [Provider].
//
// [Rules] are the node's policy. [Rules.Merge] is pure: it merges the hints of all providers into the set of NUMA nodes
// that suits them best, and reports whether the policy admits the container there.
//
// A [Manager] has no state of its own. It is called in four places:
//
//   - when a pod is admitted ([Manager.Admit]): each provider returns its hints, the policy merges them, and each
//     provider allocates there. Nothing in this blocks: pods are admitted one at a time.
//   - after the pod was admitted ([Manager.Confirm]): a provider that depends on plugins calls them. Only this pod
//     waits for that.
//   - when one of its containers is created ([Manager.Contribution]).
//   - when the pod is terminated, or rejected ([Manager.Release]).
//
// Each provider writes its checkpoint before the containers of the pod start: the CPU manager and the memory manager
// before Admit returns, the device manager before Confirm returns. So the next agent keeps the allocations, and Admit
// does not change what is allocated already.
package topology
