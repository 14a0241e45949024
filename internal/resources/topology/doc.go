// Package topology is the topology manager: it joins the managers that allocate what only one container can have,
// whole CPUs, memory of a NUMA node and devices, each of which is a [Provider].
//
// [Rules] are the node's policy. [Rules.Merge] is pure: it merges the hints of all providers into the set of NUMA
// nodes that suits them best, and says whether the policy admits the container there.
//
// A [Manager] has no state of its own. It is called in four places:
//
//   - when a pod is admitted ([Manager.Admit]): each provider returns its hints, the policy merges them, and each
//     provider allocates there. Nothing in this blocks: pods are admitted one at a time.
//   - once nothing else is against the pod ([Manager.Confirm]): a provider that depends on a plugin calls it now.
//     Only this pod waits for it.
//   - when one of its containers is created ([Manager.Contribution]).
//   - when the pod is terminated, or rejected after all ([Manager.Release]).
//
// Each provider writes its checkpoint before Admit returns, so that the next agent goes on with what was allocated:
// allocating once more what is allocated already changes nothing.
package topology
