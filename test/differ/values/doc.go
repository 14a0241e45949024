// Package values compares the metrics and stats of two agents on one node, value by value.
//
// The agents take turns on the same node and the same pods, which do not change meanwhile: the reference, the agent
// under test, and the reference once more. Each turn is a [Shot] of an endpoint: all its series with their labels and
// values. [Compare] checks these rules:
//
//   - A series that the reference shows in both of its turns is shown by the agent, and no other.
//   - A series with the same value in both turns of the reference, such as a limit, a count or a start time, has that
//     value for the agent. A series of usage may have equal values at random, and may be slightly off.
//   - A counter that grew from one turn of the reference to the next lies between the two; so does a gauge, with the
//     slack that its fluctuations need, and more if it is about the whole machine.
//   - A counter of the agent itself is above zero if that of the reference is in both of its turns, and zero if that of
//     the reference is zero in both.
//
// [Steady] leaves out devices and network interfaces that other programs of the machine add or remove meanwhile.
//
// What differs is listed with its reason ([Rules]), or is a defect.
package values
