// Package resource joins those who hand out what only one container can have: whole
// CPUs, memory of a NUMA node, devices.
//
// A [Manager] has no state of its own. It is asked in four places:
//
//   - when a pod arrives ([Manager.Admit]): each [Provider] says by hints on which
//     NUMA nodes a request could be met, the policy merges them ([topology.Rules]),
//     and each reserves there. Nobody blocks in this: pods are judged one by one.
//   - once nothing else is against the pod ([Manager.Confirm]): who has to ask
//     somebody outside does so now. Only this pod waits for it.
//   - when one of its containers is made ([Manager.Contribution]).
//   - when it has ended or is refused after all ([Manager.Release]).
//
// What was reserved is written down by its provider before Admit returns, so that an
// agent after this one goes on with it: to be asked again for what is reserved
// already changes nothing.
package resource
