// Package topology says where on a machine of several NUMA nodes a container's
// CPUs, memory and devices should come from.
//
// It holds no state and knows no resource. Whoever hands one out says by [Hint]s on
// which sets of nodes a request could be met, and which of them are as narrow as the
// machine allows; [Rules.Merge] finds the set that suits all of them best, and says
// whether the node's policy lets the container run there.
package topology
