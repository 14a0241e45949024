// Package values compares what two agents say of one node, value by value.
//
// The agents take turns on the same node and the same pods, which nobody touches meanwhile: the reference, the agent in
// question, and the reference once more. Each turn is a [Shot] of an endpoint: all its series with their labels and
// values. [Compare] goes by these three:
//
//   - A series that the reference shows in both of its turns is shown by the agent, and no other.
//   - What the reference says the same of in both turns, the agent says too: limits, counts, times of starts. What is in
//     use is the same by chance, and may be a little off.
//   - A counter that grew from one turn of the reference to the next lies between the two; so does a gauge, with the
//     slack that its fluctuations need, and more if it is about the whole machine.
//   - A counter of the agent itself has counted something if the reference's has in both of its turns, and nothing if
//     that has not.
//
// [Steady] leaves out what other programs of the machine mount or connect meanwhile.
//
// What differs is listed with its reason ([Rules]), or is a defect.
package values
